{{/* A fleet: many Clusters, each with a Cluster Autoscaler of its own, known by its certificate. */}}

{{/* "true" where a fleet is served. All that is about one workload cluster, or about clients without certificates, is refused. */}}
{{- define "capi-autoscaler-provider.fleet" -}}
{{- if .Values.fleet.selector -}}
{{- include "capi-autoscaler-provider.fleetProblems" . -}}
true
{{- else -}}
{{- with .Values.fleet -}}
{{- if or .trustDomain .namespaces .readAllSecrets .workloadNodes .groupMetrics .certificateRequestPolicy.enabled -}}
{{- fail "fleet: the Clusters are chosen by their labels: set fleet.selector, such as autoscaler=fleet, or leave out all of fleet to serve one Cluster" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Fails where the values contradict a fleet, and says what to do. */}}
{{- define "capi-autoscaler-provider.fleetProblems" -}}
{{- $one := list -}}
{{- range $value, $given := dict
  "autoDiscovery.clusterName" .Values.autoDiscovery.clusterName
  "autoDiscovery.namespace" .Values.autoDiscovery.namespace
  "autoDiscovery.labels" .Values.autoDiscovery.labels
  "autoDiscovery.specs" .Values.autoDiscovery.specs
  "autoDiscovery.allClusters" .Values.autoDiscovery.allClusters
  "clusterAPIKubeconfigSecret" .Values.clusterAPIKubeconfigSecret
  "clusterAPIWorkloadKubeconfigPath" .Values.clusterAPIWorkloadKubeconfigPath
  "clusterAutoscaler.namespace" .Values.clusterAutoscaler.namespace
  "tls.clientSecret" .Values.tls.clientSecret -}}
{{- if $given -}}{{- $one = append $one $value -}}{{- end -}}
{{- end -}}
{{- if $one -}}
{{- fail (printf "fleet.selector: %s is about one Cluster and its Cluster Autoscaler: leave it out, and install the chart capi-autoscaler-cluster for each Cluster; or leave out fleet" (join ", " $one)) -}}
{{- end -}}
{{- if not (include "capi-autoscaler-provider.managementInCluster" .) -}}
{{- fail (printf "fleet.selector: clusterAPIMode %s is for a management cluster elsewhere, and the namespaces of callers, their certificates and the consent of their Clusters are those of this cluster: install this in the management cluster, and set kubeconfig-incluster" .Values.clusterAPIMode) -}}
{{- end -}}
{{- if not .Values.fleet.trustDomain -}}
{{- fail "fleet.selector: each Cluster Autoscaler is known by the URI of its certificate, spiffe://<trust-domain>/ns/<namespace>/cluster/<name>: set fleet.trustDomain" -}}
{{- end -}}
{{- if not .Values.tls.enabled -}}
{{- fail "fleet.selector: each Cluster Autoscaler is known by its certificate, and without TLS it shows none: set tls.enabled" -}}
{{- end -}}
{{- if eq .Values.tls.certificates "helm" -}}
{{- fail "fleet.selector: certificates made by helm have no URI, by which a Cluster Autoscaler is known: set tls.certificates to cert-manager or existing" -}}
{{- end -}}
{{- if and .Values.tls.clientNames (ne (toJson .Values.tls.clientNames) `["cluster-autoscaler"]`) -}}
{{- fail "fleet.selector: a Cluster Autoscaler has no name but the URI of its Cluster: leave out tls.clientNames" -}}
{{- end -}}
{{- if ne .Values.tls.formerClientAuthority "auto" -}}
{{- fail "fleet.selector: no Cluster Autoscaler of a fleet has a certificate of an earlier chart: leave out tls.formerClientAuthority" -}}
{{- end -}}
{{- if .Values.preflight.enabled -}}
{{- fail "fleet.selector: check looks at one Cluster: leave out preflight.enabled, and run check with --cluster for one of them" -}}
{{- end -}}
{{- if not (or .Values.fleet.namespaces .Values.rbac.clusterScoped) -}}
{{- fail "fleet.selector: serving Clusters of all namespaces needs permissions in all of them: set rbac.clusterScoped, or name fleet.namespaces for a Role in each" -}}
{{- end -}}
{{- if and .Values.fleet.readAllSecrets (eq .Values.fleet.workloadNodes "none") -}}
{{- fail "fleet.readAllSecrets: with fleet.workloadNodes none no Secret is read: leave out one of them" -}}
{{- end -}}
{{- if not .Values.metrics.perGroup -}}
{{- fail "metrics.perGroup: it is about one Cluster, and a fleet has no series per node group without fleet.groupMetrics: leave it out" -}}
{{- end -}}
{{- with .Values.fleet.certificateRequestPolicy -}}
{{- if and .enabled (ne $.Values.tls.certificates "cert-manager") -}}
{{- fail "fleet.certificateRequestPolicy: it judges requests to cert-manager: set tls.certificates to cert-manager, or leave it out" -}}
{{- end -}}
{{- if and .enabled (not $.Values.tls.certManager.issuerRef) -}}
{{- fail "fleet.certificateRequestPolicy: an authority that is made here issues in this namespace alone: name a ClusterIssuer in tls.certManager.issuerRef, or leave it out" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The issuer of callers' certificates, as JSON: the named one, or that of the authority that is made for them alone. */}}
{{- define "capi-autoscaler-provider.fleetIssuer" -}}
{{- $named := .Values.tls.certManager.clientIssuerRef | default .Values.tls.certManager.issuerRef -}}
{{- $issuer := dict "group" "cert-manager.io" "kind" "Issuer" -}}
{{- if not $named -}}
{{- $named = dict "name" (printf "%s-clients" (include "capi-autoscaler-provider.fullname" .)) -}}
{{- end -}}
{{- toJson (merge (dict) $named $issuer) -}}
{{- end -}}

{{/* Values of the chart capi-autoscaler-cluster that match. */}}
{{- define "capi-autoscaler-provider.fleetClusterValues" -}}
{{- $issuer := dict "kind" "" -}}
{{- if eq .Values.tls.certificates "cert-manager" -}}
{{- $issuer = include "capi-autoscaler-provider.fleetIssuer" . | fromJson -}}
{{- end -}}
cluster:
  name: NAME
{{- if eq $issuer.kind "Issuer" }}
  namespace: NAMESPACE
{{- end }}
fleet:
  name: {{ include "capi-autoscaler-provider.fullname" . }}
  namespace: {{ .Release.Namespace }}
  trustDomain: {{ .Values.fleet.trustDomain }}
{{- with .Values.clusterAutoscaler.address }}
  address: {{ . | quote }}
{{- else }}
{{- if ne (int .Values.service.servicePort) 8086 }}
  address: {{ include "capi-autoscaler-provider.address" . | quote }}
{{- end }}
{{- end }}
{{- $account := include "capi-autoscaler-provider.serviceAccountName" . }}
{{- if ne $account (include "capi-autoscaler-provider.fullname" .) }}
  serviceAccount: {{ $account }}
{{- end }}
{{- with .Values.fleet.workloadNodes }}
consent:
{{- if eq . "none" }}
  create: false
{{- else }}
  secretName: {{ replace "{cluster}" "NAME" . }}
{{- end }}
{{- end }}
{{- if $issuer.kind }}
certificate:
  issuerRef:
    {{- toYaml $issuer | nindent 4 }}
{{- if include "capi-autoscaler-provider.separateIssuers" . }}
serverAuthority:
  secret: {{ include "capi-autoscaler-provider.serverSecret" . }}
{{- end }}
{{- else }}
certificate:
  create: false
  secretName: NAME-autoscaler-client
{{- end }}
{{- end -}}
