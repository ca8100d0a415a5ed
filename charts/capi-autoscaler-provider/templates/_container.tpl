{{/* What the containers share: flags, environment and mounts. */}}

{{/* The flags of serve, which check takes too. */}}
{{- define "capi-autoscaler-provider.flags" -}}
{{- $management := include "capi-autoscaler-provider.managementPath" . -}}
{{- $workload := include "capi-autoscaler-provider.workloadPath" . -}}
- --listen={{ .Values.listenAddress }}:8086
{{- if .Values.tls.enabled }}
- --tls-cert-file=/etc/capi-autoscaler-provider/tls/tls.crt
- --tls-key-file=/etc/capi-autoscaler-provider/tls/tls.key
- --tls-client-ca-file=/etc/capi-autoscaler-provider/clients/ca.crt
{{- if include "capi-autoscaler-provider.trustsFormerAuthority" . }}
- --tls-client-ca-file=/etc/capi-autoscaler-provider/clients/former.crt
{{- end }}
{{- if not (include "capi-autoscaler-provider.fleet" .) }}
{{- range .Values.tls.clientNames }}
- --tls-allowed-client-names={{ . }}
{{- end }}
{{- end }}
{{- else }}
- --listen-allow-insecure
{{- end }}
- --http-listen={{ .Values.listenAddress }}:8080
- --probe-listen={{ .Values.listenAddress }}:8082
{{- if not .Values.metrics.perGroup }}
- --no-group-metrics
{{- end }}
{{- if .Values.readOnly }}
- --read-only
{{- end }}
- --capacity-error-grace={{ .Values.capacityErrorGrace }}
{{- range include "capi-autoscaler-provider.rememberedNamespaces" . | fromJsonArray }}
- --remember-in={{ . }}/{{ include "capi-autoscaler-provider.rememberedName" $ }}
{{- end }}
- --management-kubeconfig={{ $management | default "in-cluster" }}
{{- if include "capi-autoscaler-provider.workloadInCluster" . }}
- --workload-kubeconfig=in-cluster
{{- else if not (or (include "capi-autoscaler-provider.fleet" .) (include "capi-autoscaler-provider.readsSecret" .)) }}
- --workload-kubeconfig={{ $workload }}
{{- end }}
{{- range include "capi-autoscaler-provider.scope" . | fromJsonArray }}
- {{ . | quote }}
{{- end }}
{{- range $key, $value := .Values.extraArgs }}
{{- $flag := regexFind "^[^_]+" $key }}
{{- if kindIs "invalid" $value }}
- --{{ $flag }}
{{- else }}
- {{ printf "--%s=%v" $flag $value | quote }}
{{- end }}
{{- end }}
{{- range .Values.customArgs }}
- {{ . | quote }}
{{- end }}
{{- end -}}

{{- define "capi-autoscaler-provider.environment" -}}
{{- range $variables := list .Values.extraEnv .Values.extraEnvConfigMaps .Values.extraEnvSecrets -}}
{{- if and (hasKey $variables "CAPI_GROUP") (not (index $.Values.extraArgs "capi-group")) -}}
{{- fail "extraEnv: permissions and policies don't follow CAPI_GROUP: set extraArgs.capi-group instead" -}}
{{- end -}}
{{- end -}}
{{- if or .Values.extraEnv .Values.extraEnvConfigMaps .Values.extraEnvSecrets }}
env:
  {{- range $name, $value := .Values.extraEnv }}
  - name: {{ $name }}
    value: {{ $value | quote }}
  {{- end }}
  {{- range $name, $from := .Values.extraEnvConfigMaps }}
  - name: {{ $name }}
    valueFrom:
      configMapKeyRef:
        name: {{ $from.name }}
        key: {{ $from.key }}
  {{- end }}
  {{- range $name, $from := .Values.extraEnvSecrets }}
  - name: {{ $name }}
    valueFrom:
      secretKeyRef:
        name: {{ $from.name }}
        key: {{ $from.key }}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "capi-autoscaler-provider.mounts" -}}
{{- $kubeconfigs := include "capi-autoscaler-provider.kubeconfigVolumes" . | fromJson -}}
{{- if or .Values.tls.enabled $kubeconfigs .Values.extraVolumeSecrets .Values.extraVolumeMounts }}
volumeMounts:
  {{- if .Values.tls.enabled }}
  - name: tls
    mountPath: /etc/capi-autoscaler-provider/tls
    readOnly: true
  - name: clients
    mountPath: /etc/capi-autoscaler-provider/clients
    readOnly: true
  {{- end }}
  {{- range $volume, $kubeconfig := $kubeconfigs }}
  - name: {{ $volume }}
    mountPath: {{ $kubeconfig.directory }}
    readOnly: true
  {{- end }}
  {{- range $volume, $secret := .Values.extraVolumeSecrets }}
  - name: {{ $volume }}
    mountPath: {{ $secret.mountPath }}
    readOnly: true
  {{- end }}
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end -}}
