{{/* Names and labels. */}}

{{- define "capi-autoscaler-provider.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* Short enough for the longest suffix, so that no object's name is longer than 63 characters. */}}
{{- define "capi-autoscaler-provider.fullname" -}}
{{- $name := include "capi-autoscaler-provider.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The name of objects without a namespace: two releases of one name may be in two namespaces. */}}
{{- define "capi-autoscaler-provider.clusterName" -}}
{{- printf "%s-%s" (include "capi-autoscaler-provider.fullname" .) .Release.Namespace -}}
{{- end -}}

{{- define "capi-autoscaler-provider.selectorLabels" -}}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/name: {{ include "capi-autoscaler-provider.name" . | quote }}
{{- end -}}

{{- define "capi-autoscaler-provider.labels" -}}
{{ include "capi-autoscaler-provider.selectorLabels" . }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" | quote }}
{{- with .Values.additionalLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "capi-autoscaler-provider.serviceAccountName" -}}
{{- if and .Values.rbac.create .Values.rbac.serviceAccount.create -}}
{{- .Values.rbac.serviceAccount.name | default (include "capi-autoscaler-provider.fullname" .) -}}
{{- else -}}
{{- .Values.rbac.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{- define "capi-autoscaler-provider.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{- printf "%s@%s" .repository .digest -}}
{{- else -}}
{{- printf "%s:%s" .repository (.tag | default $.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A document of this version, by its path in the repository: a link where the chart has been packaged for a release. */}}
{{- define "capi-autoscaler-provider.document" -}}
{{- $chart := (index . 0).Chart -}}
{{- $path := index . 1 -}}
{{- if $chart.Home -}}{{- printf "%s/blob/v%s/%s" $chart.Home $chart.Version $path -}}{{- else -}}{{- $path -}}{{- end -}}
{{- end -}}
