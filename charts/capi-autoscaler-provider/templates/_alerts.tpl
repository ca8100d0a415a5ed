{{/* The series of one release: those of others have rules of their own. */}}

{{/* Matchers of this release's series. */}}
{{- define "capi-autoscaler-provider.seriesSelector" -}}
{{- $labels := .Values.metrics.prometheusRule.selector -}}
{{- if not $labels -}}
{{- $labels = dict "namespace" .Release.Namespace -}}
{{- if .Values.metrics.serviceMonitor.enabled -}}
{{- /* Without a jobLabel the job is the Service's name. */ -}}
{{- $_ := set $labels "job" (printf "%s-metrics" (include "capi-autoscaler-provider.fullname" .)) -}}
{{- end -}}
{{- end -}}
{{- $matchers := list -}}
{{- range $label, $value := $labels -}}{{- $matchers = append $matchers (printf "%s=%q" $label $value) -}}{{- end -}}
{{- join ", " $matchers -}}
{{- end -}}

{{/* A query with these matchers for each metric of the program. */}}
{{- define "capi-autoscaler-provider.scopedQuery" -}}
{{- $braced := regexReplaceAll "(capi_autoscaler_provider_[a-z_]+)([^a-z_{]|$)" .query "${1}{}${2}" -}}
{{- $placed := regexReplaceAll "(capi_autoscaler_provider_[a-z_]+){" $braced "${1}{<scope>, " -}}
{{- $placed | replace "<scope>, }" "<scope>}" | replace "<scope>" .scope -}}
{{- end -}}
