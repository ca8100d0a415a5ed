{{/* Short enough for the longest suffix, so that no object's name is longer than 63 characters. */}}
{{- define "capi-autoscaler-cluster.fullname" -}}
{{- .Values.fullnameOverride | default .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "capi-autoscaler-cluster.labels" -}}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/name: {{ .Chart.Name | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" | quote }}
{{- with .Values.additionalLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "capi-autoscaler-cluster.cluster" -}}
{{- required "cluster.name: name the Cluster that is autoscaled" .Values.cluster.name -}}
{{- end -}}

{{- define "capi-autoscaler-cluster.namespace" -}}
{{- .Values.cluster.namespace | default .Release.Namespace -}}
{{- end -}}

{{/* The identity by which the fleet knows the caller, and finds its Cluster. */}}
{{- define "capi-autoscaler-cluster.uri" -}}
{{- $domain := required "fleet.trustDomain: set it to fleet.trustDomain of the release of capi-autoscaler-provider, by which the fleet knows its callers" .Values.fleet.trustDomain -}}
{{- printf "spiffe://%s/ns/%s/cluster/%s" $domain (include "capi-autoscaler-cluster.namespace" .) (include "capi-autoscaler-cluster.cluster" .) -}}
{{- end -}}

{{- define "capi-autoscaler-cluster.clientSecret" -}}
{{- if and (not .Values.certificate.create) (not .Values.certificate.secretName) -}}
{{- fail "certificate.secretName: without certificate.create the Secret has to be there: name it" -}}
{{- end -}}
{{- .Values.certificate.secretName | default (printf "%s-client" (include "capi-autoscaler-cluster.fullname" .)) -}}
{{- end -}}

{{/* The issuer of the certificate, as JSON. */}}
{{- define "capi-autoscaler-cluster.issuer" -}}
{{- if not .Values.certificate.issuerRef.name -}}
{{- fail "certificate.issuerRef: name the issuer of the fleet's callers, or set certificate.create to false and name a Secret in certificate.secretName" -}}
{{- end -}}
{{- toJson (merge (dict) .Values.certificate.issuerRef (dict "group" "cert-manager.io" "kind" "ClusterIssuer")) -}}
{{- end -}}

{{/* Where the authority of the server comes from: pem, configMap, secret, or certificate. */}}
{{- define "capi-autoscaler-cluster.serverAuthority" -}}
{{- with .Values.serverAuthority -}}
{{- $given := list -}}
{{- if .pem -}}{{- $given = append $given "pem" -}}{{- end -}}
{{- if .configMap -}}{{- $given = append $given "configMap" -}}{{- end -}}
{{- if .secret -}}{{- $given = append $given "secret" -}}{{- end -}}
{{- if gt (len $given) 1 -}}
{{- fail (printf "serverAuthority: %s are given: set one of them, since Cluster Autoscaler reads one file" (join " and " $given)) -}}
{{- end -}}
{{- first (append $given "certificate") -}}
{{- end -}}
{{- end -}}

{{/* The file that Cluster Autoscaler's --cloud-config names. */}}
{{- define "capi-autoscaler-cluster.cloudConfig" -}}
address: {{ .Values.fleet.address | default (printf "%s.%s.svc:8086" .Values.fleet.name .Values.fleet.namespace) | quote }}
grpc_timeout: 30s
key: /etc/capi-autoscaler-provider/tls/tls.key
cert: /etc/capi-autoscaler-provider/tls/tls.crt
cacert: /etc/capi-autoscaler-provider/{{ eq (include "capi-autoscaler-cluster.serverAuthority" .) "pem" | ternary "config" "tls" }}/ca.crt
{{- end -}}

{{/* Values of the official chart "cluster-autoscaler", 9.59. */}}
{{- define "capi-autoscaler-cluster.autoscalerValues" -}}
{{- $authority := include "capi-autoscaler-cluster.serverAuthority" . -}}
cloudProvider: externalgrpc
# The chart renders no Deployment unless a value of autoDiscovery is set. It has no other effect with this provider.
autoDiscovery:
  clusterName: {{ include "capi-autoscaler-cluster.cluster" . | quote }}
# The kubeconfig of the workload cluster, for Cluster Autoscaler itself: a Secret in its namespace, with the key "value".
clusterAPIKubeconfigSecret: {{ .Values.autoscaler.kubeconfigSecret | default (printf "%s-kubeconfig" (include "capi-autoscaler-cluster.cluster" .)) }}
clusterAPIWorkloadKubeconfigPath: /etc/kubernetes/value
extraArgs:
  # The chart sets no --cloud-config for this provider.
  cloud-config: /etc/capi-autoscaler-provider/config/cloud-config.yaml
  # Cluster API's own taint is on a Node until its labels are there. Before that no pod that asks for them fits on it.
  startup-taint: node.cluster.x-k8s.io/uninitialized
  kubeconfig: /etc/kubernetes/value
  # Where Cluster Autoscaler keeps its lease and its status in the workload cluster.
  namespace: kube-system
extraVolumes:
  - name: capi-autoscaler-provider-config
    configMap:
      name: {{ include "capi-autoscaler-cluster.fullname" . }}-cloud-config
  - name: capi-autoscaler-provider-tls
    projected:
      sources:
        - secret:
            name: {{ include "capi-autoscaler-cluster.clientSecret" . }}
            items:
              - {key: tls.crt, path: tls.crt}
              - {key: tls.key, path: tls.key}
              {{- if eq $authority "certificate" }}
              - {key: ca.crt, path: ca.crt}
              {{- end }}
        {{- if has $authority (list "configMap" "secret") }}
        # The authority of the server, not that of clients.
        - {{ $authority }}:
            name: {{ get .Values.serverAuthority $authority }}
            items:
              - {key: ca.crt, path: ca.crt}
        {{- end }}
extraVolumeMounts:
  - name: capi-autoscaler-provider-config
    mountPath: /etc/capi-autoscaler-provider/config
    readOnly: true
  - name: capi-autoscaler-provider-tls
    mountPath: /etc/capi-autoscaler-provider/tls
    readOnly: true
rbac:
  # Cluster Autoscaler acts on the workload cluster by its kubeconfig, and needs no permissions in this one.
  create: false
  serviceAccount:
    create: false
{{- end -}}

{{/* Labels and annotations of an object that Helm makes for its events alone: the context, the events, the order. */}}
{{- define "capi-autoscaler-cluster.hook" -}}
labels:
  {{- include "capi-autoscaler-cluster.labels" (index . 0) | nindent 2 }}
annotations:
  helm.sh/hook: {{ index . 1 }}
  helm.sh/hook-weight: {{ index . 2 | quote }}
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}

{{/* The labels that the Cluster gets, as JSON. */}}
{{- define "capi-autoscaler-cluster.labelsOfCluster" -}}
{{- if not .Values.label.labels -}}
{{- fail "label.labels: name the labels that fleet.selector of the fleet matches, such as {autoscaler: fleet}, or set label.enabled to false" -}}
{{- end -}}
{{- toJson .Values.label.labels -}}
{{- end -}}

{{- define "capi-autoscaler-cluster.labelImage" -}}
{{- with .Values.label.image -}}
{{- if .digest -}}
{{- printf "%s@%s" .repository .digest -}}
{{- else -}}
{{- printf "%s:%s" .repository (required "label.image.tag: name a version of kubectl" .tag) -}}
{{- end -}}
{{- end -}}
{{- end -}}
