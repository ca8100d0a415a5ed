{{/* Which node groups, and how the clusters are reached. */}}

{{/* "true" where the management cluster is the one that this is installed in. */}}
{{- define "capi-autoscaler-provider.managementInCluster" -}}
{{- if hasSuffix "-incluster" .Values.clusterAPIMode -}}true{{- end -}}
{{- end -}}

{{/* "true" where the workload cluster is the one that this is installed in. */}}
{{- define "capi-autoscaler-provider.workloadInCluster" -}}
{{- if not (include "capi-autoscaler-provider.fleet" .) -}}
{{- if hasPrefix "incluster-" .Values.clusterAPIMode -}}true{{- end -}}
{{- end -}}
{{- end -}}

{{/* The path of the workload cluster's kubeconfig; empty where it is read from the Secret in the management cluster, and in a fleet. */}}
{{- define "capi-autoscaler-provider.workloadPath" -}}
{{- if not (or (include "capi-autoscaler-provider.fleet" .) (include "capi-autoscaler-provider.workloadInCluster" .)) -}}
{{- if .Values.clusterAPIWorkloadKubeconfigPath -}}
{{- .Values.clusterAPIWorkloadKubeconfigPath -}}
{{- else if .Values.clusterAPIKubeconfigSecret -}}
/etc/kubernetes/workload/value
{{- else if eq .Values.clusterAPIMode "single-kubeconfig" -}}
{{- fail "clusterAPIMode single-kubeconfig needs a kubeconfig: name its Secret in clusterAPIKubeconfigSecret, or the path at which you mount it in clusterAPIWorkloadKubeconfigPath" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The path of the management cluster's kubeconfig; empty where it is in the cluster. */}}
{{- define "capi-autoscaler-provider.managementPath" -}}
{{- $_ := include "capi-autoscaler-provider.fleet" . -}}
{{- if eq .Values.clusterAPIMode "single-kubeconfig" -}}
{{- include "capi-autoscaler-provider.workloadPath" . -}}
{{- else if hasSuffix "-kubeconfig" .Values.clusterAPIMode -}}
{{- if .Values.clusterAPICloudConfigPath -}}
{{- .Values.clusterAPICloudConfigPath -}}
{{- else if .Values.clusterAPIManagementKubeconfigSecret -}}
/etc/kubernetes/management/value
{{- else -}}
{{- fail (printf "clusterAPIMode %s needs a kubeconfig of the management cluster: name its Secret in clusterAPIManagementKubeconfigSecret, or the path at which you mount it in clusterAPICloudConfigPath" .Values.clusterAPIMode) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Kubeconfigs that are mounted from Secrets, as a JSON object of volume to {secret, directory}. */}}
{{- define "capi-autoscaler-provider.kubeconfigVolumes" -}}
{{- $volumes := dict -}}
{{- $workload := include "capi-autoscaler-provider.workloadPath" . -}}
{{- if and $workload .Values.clusterAPIKubeconfigSecret -}}
{{- $_ := set $volumes "workload-kubeconfig" (dict "secret" .Values.clusterAPIKubeconfigSecret "path" $workload "value" "clusterAPIWorkloadKubeconfigPath") -}}
{{- end -}}
{{- $management := include "capi-autoscaler-provider.managementPath" . -}}
{{- if and $management .Values.clusterAPIManagementKubeconfigSecret (ne .Values.clusterAPIMode "single-kubeconfig") -}}
{{- $_ := set $volumes "management-kubeconfig" (dict "secret" .Values.clusterAPIManagementKubeconfigSecret "path" $management "value" "clusterAPICloudConfigPath") -}}
{{- end -}}
{{- range $volume := $volumes -}}
{{- if not (hasSuffix "/value" .path) -}}
{{- fail (printf "%s %s: a Secret is mounted as a directory with the file \"value\" in it, so the path has to end in /value" .value .path) -}}
{{- end -}}
{{- $_ := set . "directory" (trimSuffix "/value" .path) -}}
{{- end -}}
{{- toJson $volumes -}}
{{- end -}}

{{/* The namespace of clusterName, labels and namespace; empty is all. */}}
{{- define "capi-autoscaler-provider.namespace" -}}
{{- if .Values.autoDiscovery.namespace -}}
{{- .Values.autoDiscovery.namespace -}}
{{- else if not .Values.rbac.clusterScoped -}}
{{- .Release.Namespace -}}
{{- end -}}
{{- end -}}

{{/* Judges autoDiscovery and fleet, and says which way of choosing they take: fleet, fields, specs or all. */}}
{{- define "capi-autoscaler-provider.choice" -}}
{{- if include "capi-autoscaler-provider.fleet" . -}}
fleet
{{- else -}}
{{- with .Values.autoDiscovery -}}
{{- $chosen := list -}}
{{- if or .clusterName .labels .namespace -}}{{- $chosen = append $chosen "fields" -}}{{- end -}}
{{- if .specs -}}{{- $chosen = append $chosen "specs" -}}{{- end -}}
{{- if .allClusters -}}{{- $chosen = append $chosen "all" -}}{{- end -}}
{{- if not $chosen -}}
{{- fail "no node groups are chosen, and without a choice those of all Clusters would be scaled: set autoDiscovery.clusterName, with autoDiscovery.namespace if the Cluster isn't in the release's namespace (or autoDiscovery.labels, autoDiscovery.specs or autoDiscovery.allClusters); fleet.selector serves many Clusters" -}}
{{- end -}}
{{- if gt (len $chosen) 1 -}}
{{- fail "autoDiscovery: set clusterName, labels and namespace, or specs, or allClusters, and leave out the others: each chooses the node groups" -}}
{{- end -}}
{{- if and .allClusters (not $.Values.rbac.clusterScoped) -}}
{{- fail "autoDiscovery.allClusters reads all namespaces: set rbac.clusterScoped" -}}
{{- end -}}
{{- first $chosen -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The flags that choose the node groups, as a JSON list. */}}
{{- define "capi-autoscaler-provider.scope" -}}
{{- $choice := include "capi-autoscaler-provider.choice" . -}}
{{- $namespace := include "capi-autoscaler-provider.namespace" . -}}
{{- $flags := list -}}
{{- with .Values.autoDiscovery -}}
{{- if eq $choice "fleet" -}}
{{- $flags = list (printf "--fleet-selector=%s" $.Values.fleet.selector) (printf "--fleet-trust-domain=%s" $.Values.fleet.trustDomain) -}}
{{- range $.Values.fleet.namespaces -}}{{- $flags = append $flags (printf "--fleet-namespaces=%s" .) -}}{{- end -}}
{{- with $.Values.fleet.workloadNodes -}}{{- $flags = append $flags (printf "--workload-nodes=%s" .) -}}{{- end -}}
{{- if $.Values.fleet.groupMetrics -}}{{- $flags = append $flags "--fleet-group-metrics" -}}{{- end -}}
{{- else if eq $choice "all" -}}
{{- $flags = list "--all-clusters" -}}
{{- else if eq $choice "specs" -}}
{{- range .specs -}}{{- $flags = append $flags (printf "--node-group-auto-discovery=%s" .) -}}{{- end -}}
{{- else if and .clusterName $namespace (not .labels) -}}
{{- $flags = list (printf "--cluster=%s/%s" $namespace .clusterName) -}}
{{- else -}}
{{- $items := list -}}
{{- with $namespace -}}{{- $items = append $items (printf "namespace=%s" .) -}}{{- end -}}
{{- with .clusterName -}}{{- $items = append $items (printf "clusterName=%s" .) -}}{{- end -}}
{{- range .labels -}}{{- range $key, $value := . -}}{{- $items = append $items (printf "%s=%s" $key $value) -}}{{- end -}}{{- end -}}
{{- $flags = list (printf "--node-group-auto-discovery=clusterapi:%s" (join "," $items)) -}}
{{- end -}}
{{- end -}}
{{- toJson $flags -}}
{{- end -}}

{{/* The namespaces that need a Role, as a JSON list. */}}
{{- define "capi-autoscaler-provider.namespaces" -}}
{{- $namespaces := list -}}
{{- $choice := include "capi-autoscaler-provider.choice" . -}}
{{- if eq $choice "fleet" -}}
{{- $namespaces = .Values.fleet.namespaces -}}
{{- else if eq $choice "specs" -}}
{{- range .Values.autoDiscovery.specs -}}
{{- $all := regexFindAll "[:,]namespace=[^,]*" . -1 -}}
{{- if gt (len $all) 1 -}}
{{- fail (printf "autoDiscovery.specs: %s names several namespaces, of which the program takes the last: leave out the others, or make each an item of its own" .) -}}
{{- end -}}
{{- $named := regexFind "[:,]namespace=[^,]+" . -}}
{{- if not $named -}}
{{- fail (printf "autoDiscovery.specs: %s names no namespace, so all are read: add namespace=…, or set rbac.clusterScoped" .) -}}
{{- end -}}
{{- $namespaces = append $namespaces (regexReplaceAll "^.namespace=" $named "") -}}
{{- end -}}
{{- else -}}
{{- $namespaces = list (include "capi-autoscaler-provider.namespace" .) -}}
{{- end -}}
{{- toJson (uniq $namespaces) -}}
{{- end -}}

{{/* The ConfigMaps that remember Nodes: their name, and their namespaces as a JSON list. A fleet of several namespaces has one in
each, so that tenants share none; else the release has one. They are in the management cluster, which has to be this one. */}}
{{- define "capi-autoscaler-provider.rememberedName" -}}
{{- printf "%s-remembered" (include "capi-autoscaler-provider.fullname" . | trunc 240 | trimSuffix "-") -}}
{{- end -}}
{{- define "capi-autoscaler-provider.rememberedNamespaces" -}}
{{- $namespaces := list -}}
{{- if and .Values.remember.enabled (include "capi-autoscaler-provider.managementInCluster" .) -}}
{{- $namespaces = list .Release.Namespace -}}
{{- if and (include "capi-autoscaler-provider.fleet" .) (gt (len .Values.fleet.namespaces) 1) -}}
{{- $namespaces = uniq .Values.fleet.namespaces -}}
{{- end -}}
{{- end -}}
{{- toJson $namespaces -}}
{{- end -}}

{{/* "true" where the program reads the workload cluster's kubeconfig from the Secret that Cluster API keeps. In a fleet each Cluster
grants that by a Role of its own. */}}
{{- define "capi-autoscaler-provider.readsSecret" -}}
{{- if not (or (include "capi-autoscaler-provider.fleet" .) (include "capi-autoscaler-provider.workloadInCluster" .) (include "capi-autoscaler-provider.workloadPath" .)) -}}
{{- $one := and .Values.autoDiscovery.clusterName (include "capi-autoscaler-provider.namespace" .) (not .Values.autoDiscovery.labels) -}}
{{- if not $one -}}
{{- fail (printf "clusterAPIMode %s: without clusterAPIKubeconfigSecret (or clusterAPIWorkloadKubeconfigPath) the workload cluster's kubeconfig is read from the Secret of one Cluster: set autoDiscovery.clusterName and autoDiscovery.namespace, and no labels" .Values.clusterAPIMode) -}}
{{- end -}}
true
{{- end -}}
{{- end -}}

{{/* What extraArgs have for workload-nodes. */}}
{{- define "capi-autoscaler-provider.workloadNodes" -}}
{{- range $key, $value := .Values.extraArgs -}}
{{- if and (eq (regexFind "^[^_]+" $key) "workload-nodes") (not (kindIs "invalid" $value)) -}}{{- $value -}}{{- end -}}
{{- end -}}
{{- end -}}

{{/* The Secret that the program reads for the Nodes of its one Cluster; empty where it reads none. */}}
{{- define "capi-autoscaler-provider.nodesSecret" -}}
{{- $nodes := include "capi-autoscaler-provider.workloadNodes" . -}}
{{- if include "capi-autoscaler-provider.readsSecret" . -}}
{{- if and $nodes (ne $nodes "none") (not (contains "{cluster}" $nodes)) -}}
{{- fail (printf "extraArgs: workload-nodes: %q names no Secret of a Cluster: put {cluster} into it, such as {cluster}-nodes, or set none" $nodes) -}}
{{- end -}}
{{- if ne $nodes "none" -}}
{{- $nodes | default "{cluster}-kubeconfig" | replace "{cluster}" .Values.autoDiscovery.clusterName -}}
{{- end -}}
{{- else if and $nodes (not (include "capi-autoscaler-provider.fleet" .)) -}}
{{- fail (printf "extraArgs: workload-nodes is about a Secret in the management cluster, and by clusterAPIMode %s and clusterAPIKubeconfigSecret (or clusterAPIWorkloadKubeconfigPath) the workload cluster is reached otherwise: leave out workload-nodes, or set kubeconfig-incluster or kubeconfig-kubeconfig without them" .Values.clusterAPIMode) -}}
{{- end -}}
{{- end -}}
