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
# Sizes: read again when a write fails.
- apiGroups: [{{ $group }}]
  resources: [machinedeployments, machinesets, machinepools]
  verbs: [get]
# Deletions.
- apiGroups: [{{ $group }}]
  resources: [machines]
  verbs: [get, delete]
{{- if or .Values.rbac.markMachines (ne $group "cluster.x-k8s.io") }}
# The annotation delete-machine: of Machines of MachinePools and of other API groups.
- apiGroups: [{{ $group }}]
  resources: [machines]
  verbs: [patch]
{{- end }}
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
{{- if .Values.remember.enabled }}
{{- range .Values.rbac.bootstrapGroups }}
# Scaling from zero by Nodes that are remembered: which bootstrap template they had.
- apiGroups: [{{ .group }}]
  resources: {{ toJson .resources }}
  verbs: [list, watch]
{{- end }}
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
