{{/* Rights: no more than needed. */}}

{{/* In the management cluster: Cluster API's objects. */}}
{{- define "capi-autoscaler-provider.managementRules" -}}
{{- $group := index .Values.extraArgs "capi-group" | default "cluster.x-k8s.io" -}}
{{- $writes := not .Values.readOnly -}}
# Reads.
- apiGroups: [{{ $group }}]
  resources: [clusters, machinedeployments, machinesets, machines, machinepools]
  verbs: [list, watch]
{{- if $writes }}
# Sizes.
- apiGroups: [{{ $group }}]
  resources: [machinedeployments/scale, machinesets/scale, machinepools/scale]
  verbs: [patch]
# Deletions: the size and the log of deletions in one write, which is read again when a write fails; the annotation
# replaced.
- apiGroups: [{{ $group }}]
  resources: [machinedeployments, machinesets, machinepools]
  verbs: [get, patch]
# The annotation delete-machine; a Machine that is left when a smaller size has taken another one, or is replaced.
- apiGroups: [{{ $group }}]
  resources: [machines]
  verbs: [get, patch, delete]
{{- end }}
{{- if and $writes (not (hasKey .Values.extraArgs "no-events")) }}
# Events on node groups.
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end }}
{{- range .Values.rbac.infrastructureGroups }}
# Scaling from zero by status.capacity.
- apiGroups: [{{ .group }}]
  resources: {{ toJson .resources }}
  verbs: [list, watch]
{{- end }}
{{- if .Values.fleet.readAllSecrets }}
# Every Secret, private keys among them: RBAC can't name the kubeconfigs of Clusters that are yet to come.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get]
{{- end }}
{{- with .Values.rbac.additionalRules }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* In the workload cluster: Nodes. */}}
{{- define "capi-autoscaler-provider.workloadRules" -}}
- apiGroups: [""]
  resources: [nodes]
  verbs: [list, watch]
{{- end -}}

{{- define "capi-autoscaler-provider.subjects" -}}
- kind: ServiceAccount
  name: {{ include "capi-autoscaler-provider.serviceAccountName" . }}
  namespace: {{ .Release.Namespace }}
{{- end -}}

{{/* Metadata below the name: labels, and annotations of rbac. */}}
{{- define "capi-autoscaler-provider.rbacMetadata" -}}
labels:
  {{- include "capi-autoscaler-provider.labels" . | nindent 2 }}
{{- with .Values.rbac.annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
