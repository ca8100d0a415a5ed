{{/* Names, files and Secrets of TLS, and what Cluster Autoscaler gets. */}}

{{- define "capi-autoscaler-provider.authoritySecret" -}}
{{- printf "%s-ca" (include "capi-autoscaler-provider.fullname" .) -}}
{{- end -}}

{{- define "capi-autoscaler-provider.serverSecret" -}}
{{- if eq .Values.tls.certificates "existing" -}}
{{- required "tls.certificates existing: name the Secret of the server's certificate in tls.serverSecret" .Values.tls.serverSecret -}}
{{- else -}}
{{- printf "%s-server" (include "capi-autoscaler-provider.fullname" .) -}}
{{- end -}}
{{- end -}}

{{- define "capi-autoscaler-provider.clientSecret" -}}
{{- if eq .Values.tls.certificates "existing" -}}
{{- required "tls.certificates existing: name the Secret of the client's certificate in tls.clientSecret" .Values.tls.clientSecret -}}
{{- else -}}
{{- printf "%s-client" (include "capi-autoscaler-provider.fullname" .) -}}
{{- end -}}
{{- end -}}

{{- define "capi-autoscaler-provider.cloudConfigName" -}}
{{- printf "%s-cloud-config" (include "capi-autoscaler-provider.fullname" .) -}}
{{- end -}}

{{- define "capi-autoscaler-provider.autoscalerNamespace" -}}
{{- .Values.clusterAutoscaler.namespace | default .Release.Namespace -}}
{{- end -}}

{{- define "capi-autoscaler-provider.address" -}}
{{- .Values.clusterAutoscaler.address | default (printf "%s.%s.svc:%v" (include "capi-autoscaler-provider.fullname" .) .Release.Namespace .Values.service.servicePort) -}}
{{- end -}}

{{/* The host of the address, which the client checks. */}}
{{- define "capi-autoscaler-provider.addressHost" -}}
{{- regexReplaceAll ":[0-9]+$" (include "capi-autoscaler-provider.address" .) "" | trimPrefix "[" | trimSuffix "]" -}}
{{- end -}}

{{/* DNS names and IP addresses of the server's certificate, as JSON: {dns, ip}. The client checks the host of its address. */}}
{{- define "capi-autoscaler-provider.serverNames" -}}
{{- $service := printf "%s.%s" (include "capi-autoscaler-provider.fullname" .) .Release.Namespace -}}
{{- $dns := list (printf "%s.svc" $service) (printf "%s.svc.cluster.local" $service) -}}
{{- $ip := .Values.tls.ipAddresses -}}
{{- if .Values.clusterAutoscaler.address -}}
{{- $host := include "capi-autoscaler-provider.addressHost" . -}}
{{- if or (contains ":" $host) (regexMatch "^[0-9.]+$" $host) -}}
{{- $ip = append $ip $host -}}
{{- else -}}
{{- $dns = append $dns $host -}}
{{- end -}}
{{- end -}}
{{- $dns = concat $dns .Values.tls.dnsNames -}}
{{- toJson (dict "dns" (uniq $dns) "ip" (uniq $ip)) -}}
{{- end -}}

{{/* The file that Cluster Autoscaler's --cloud-config names. */}}
{{- define "capi-autoscaler-provider.cloudConfig" -}}
address: {{ include "capi-autoscaler-provider.address" . | quote }}
{{- if .Values.tls.enabled }}
key: /etc/capi-autoscaler-provider/tls/tls.key
cert: /etc/capi-autoscaler-provider/tls/tls.crt
cacert: /etc/capi-autoscaler-provider/tls/ca.crt
{{- end }}
{{- end -}}

{{/* The values of the official chart "cluster-autoscaler" that match. */}}
{{- define "capi-autoscaler-provider.autoscalerValues" -}}
cloudProvider: externalgrpc
# The chart renders no Deployment unless a value of autoDiscovery is set. Nothing else comes of it with this provider.
autoDiscovery:
  clusterName: {{ .Values.autoDiscovery.clusterName | default "any" | quote }}
{{- if not (include "capi-autoscaler-provider.workloadInCluster" .) }}
# The kubeconfig of the workload cluster, for Cluster Autoscaler itself: a Secret in its namespace, with the key "value".
clusterAPIKubeconfigSecret: {{ .Values.clusterAPIKubeconfigSecret | default (printf "%s-kubeconfig" (.Values.autoDiscovery.clusterName | default "workload")) }}
clusterAPIWorkloadKubeconfigPath: /etc/kubernetes/value
{{- end }}
extraArgs:
  # The chart sets no --cloud-config for this provider.
  cloud-config: /etc/capi-autoscaler-provider/config/cloud-config.yaml
  # Cluster API's own taint is on a Node until its labels are there. Before that no pod that asks for them fits on it.
  startup-taint: node.cluster.x-k8s.io/uninitialized
{{- if not (include "capi-autoscaler-provider.workloadInCluster" .) }}
  kubeconfig: /etc/kubernetes/value
  # Where Cluster Autoscaler keeps its lease and its status in the workload cluster.
  namespace: kube-system
{{- end }}
{{- if .Values.tls.enabled }}
extraVolumeSecrets:
  capi-autoscaler-provider-tls:
    name: {{ include "capi-autoscaler-provider.clientSecret" . }}
    mountPath: /etc/capi-autoscaler-provider/tls
{{- end }}
extraVolumes:
  - name: capi-autoscaler-provider-config
    configMap:
      name: {{ include "capi-autoscaler-provider.cloudConfigName" . }}
extraVolumeMounts:
  - name: capi-autoscaler-provider-config
    mountPath: /etc/capi-autoscaler-provider/config
    readOnly: true
{{- if include "capi-autoscaler-provider.workloadInCluster" . }}
rbac:
  # Rights in the workload cluster. Those for Cluster API's objects are the provider's, not Cluster Autoscaler's.
  create: true
{{- else }}
rbac:
  # Cluster Autoscaler acts on the workload cluster by its kubeconfig, and needs no rights in this one.
  create: false
  serviceAccount:
    create: false
{{- end }}
{{- end -}}
