{{/* Names, files and Secrets of TLS, and what Cluster Autoscaler gets. */}}

{{- define "capi-autoscaler-provider.authoritySecret" -}}
{{- printf "%s-ca" (include "capi-autoscaler-provider.fullname" .) -}}
{{- end -}}

{{/* "true" where lookups work: one finds our own Secret, or what every cluster has. Whoever installs ConfigMaps may read that of the
namespace; Helm may be about to create the namespace, and then may read the other one. */}}
{{- define "capi-autoscaler-provider.seesCluster" -}}
{{- if lookup "v1" "Secret" .Release.Namespace (include "capi-autoscaler-provider.authoritySecret" .) -}}true
{{- else if lookup "v1" "ConfigMap" .Release.Namespace "kube-root-ca.crt" -}}true
{{- else if lookup "v1" "Namespace" "" "kube-system" -}}true
{{- end -}}
{{- end -}}

{{/* The authority that is made for Cluster Autoscaler's certificate and issues nothing else. */}}
{{- define "capi-autoscaler-provider.ownClientAuthority" -}}
{{- printf "%s-client-ca" (include "capi-autoscaler-provider.fullname" .) -}}
{{- end -}}

{{/* "true" where one issuer of cert-manager, which may issue for others too, certifies server and client. */}}
{{- define "capi-autoscaler-provider.sharesIssuer" -}}
{{- if eq .Values.tls.certificates "cert-manager" -}}
{{- with .Values.tls.certManager -}}
{{- if and .issuerRef (eq (toJson (.clientIssuerRef | default .issuerRef)) (toJson .issuerRef)) -}}true{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* "true" where cert-manager writes the clients' authority, and not the server's, into ca.crt of the client's Secret. */}}
{{- define "capi-autoscaler-provider.separateIssuers" -}}
{{- if and (eq .Values.tls.certificates "cert-manager") (not (include "capi-autoscaler-provider.sharesIssuer" .)) -}}true{{- end -}}
{{- end -}}

{{/* The Secret whose ca.crt says which clients are let in. */}}
{{- define "capi-autoscaler-provider.clientAuthoritySecret" -}}
{{- $named := .Values.tls.clientAuthoritySecret -}}
{{- $clientNamespace := include "capi-autoscaler-provider.autoscalerNamespace" . -}}
{{- if eq .Values.tls.certificates "helm" -}}
{{- if $named -}}
{{- fail "tls.clientAuthoritySecret: with tls.certificates helm the chart makes the authority of the clients itself: leave it out, or set tls.certificates to cert-manager or existing" -}}
{{- end -}}
{{- include "capi-autoscaler-provider.ownClientAuthority" . -}}
{{- else if $named -}}
{{- $named -}}
{{- else if or (eq .Values.tls.certificates "existing") (include "capi-autoscaler-provider.sharesIssuer" .) -}}
{{- include "capi-autoscaler-provider.serverSecret" . -}}
{{- else if not .Values.tls.certManager.clientIssuerRef -}}
{{- include "capi-autoscaler-provider.ownClientAuthority" . -}}
{{- else if include "capi-autoscaler-provider.fleet" . -}}
{{- fail "tls.certManager.clientIssuerRef: the certificates of a fleet's callers are in other namespaces: name a Secret of this one that has the authority of this issuer under ca.crt in tls.clientAuthoritySecret" -}}
{{- else if eq $clientNamespace .Release.Namespace -}}
{{- include "capi-autoscaler-provider.clientSecret" . -}}
{{- else -}}
{{- fail (printf "tls.certManager.clientIssuerRef: the client's Secret is in namespace %s and can't be mounted in %s: name a Secret there that has the authority of this issuer under ca.crt in tls.clientAuthoritySecret" $clientNamespace .Release.Namespace) -}}
{{- end -}}
{{- end -}}

{{/* With separate issuers: the Secret of Cluster Autoscaler's namespace whose ca.crt is the server's authority. */}}
{{- define "capi-autoscaler-provider.serverAuthoritySecret" -}}
{{- $clientNamespace := include "capi-autoscaler-provider.autoscalerNamespace" . -}}
{{- if .Values.tls.serverAuthoritySecret -}}
{{- .Values.tls.serverAuthoritySecret -}}
{{- else if eq $clientNamespace .Release.Namespace -}}
{{- include "capi-autoscaler-provider.serverSecret" . -}}
{{- else -}}
{{- fail (printf "tls.certManager.clientIssuerRef: Cluster Autoscaler in namespace %s needs the server's authority: name a Secret there that has it under ca.crt in tls.serverAuthoritySecret" $clientNamespace) -}}
{{- end -}}
{{- end -}}

{{/* The annotation of the client's Secret that identifies one of an older chart: that of its authority. */}}
{{- define "capi-autoscaler-provider.clientAuthorityMark" -}}
capi-autoscaler-provider.io/client-authority
{{- end -}}
{{/* The annotation of the client's Secret that names the version of the chart that trusts the former authority. */}}
{{- define "capi-autoscaler-provider.formerTrustedBy" -}}
capi-autoscaler-provider.io/former-authority-trusted-by
{{- end -}}

{{/* The Secret of the client's certificate of charts in which one authority issued for server and client. */}}
{{- define "capi-autoscaler-provider.formerClientSecret" -}}
{{- printf "%s-client" (include "capi-autoscaler-provider.fullname" .) -}}
{{- end -}}

{{/* "true" while clients of the server's authority are let in too: Cluster Autoscaler reads its files once, so that after an upgrade
it still has a certificate of that authority. The version of the chart that finds it so trusts it, and the next one doesn't. */}}
{{- define "capi-autoscaler-provider.trustsFormerAuthority" -}}
{{- $how := .Values.tls.formerClientAuthority | default "auto" -}}
{{- $made := or (eq .Values.tls.certificates "helm") (include "capi-autoscaler-provider.separateIssuers" .) -}}
{{- if include "capi-autoscaler-provider.fleet" . -}}
{{- else if and .Values.tls.enabled $made (ne $how "refuse") -}}
{{- $namespace := include "capi-autoscaler-provider.autoscalerNamespace" . -}}
{{- $there := lookup "v1" "Secret" $namespace (include "capi-autoscaler-provider.clientSecret" .) -}}
{{- $annotations := dict -}}
{{- if $there -}}{{- $annotations = $there.metadata.annotations | default dict -}}{{- end -}}
{{- if eq $how "trust" -}}
true
{{- else if eq (get $annotations (include "capi-autoscaler-provider.formerTrustedBy" .)) .Chart.Version -}}
true
{{- else if eq .Values.tls.certificates "helm" -}}
{{- if and $there (not (hasKey $annotations (include "capi-autoscaler-provider.clientAuthorityMark" .))) -}}true{{- end -}}
{{- else if not $there -}}
{{- if lookup "v1" "Secret" $namespace (include "capi-autoscaler-provider.formerClientSecret" .) -}}true{{- end -}}
{{- end -}}
{{- end -}}
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
{{- else if include "capi-autoscaler-provider.separateIssuers" . -}}
{{- printf "%s-client-tls" (include "capi-autoscaler-provider.fullname" .) -}}
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
grpc_timeout: 30s
{{- if .Values.tls.enabled }}
key: /etc/capi-autoscaler-provider/tls/tls.key
cert: /etc/capi-autoscaler-provider/tls/tls.crt
cacert: /etc/capi-autoscaler-provider/tls/ca.crt
{{- end }}
{{- end -}}

{{/* The values of the official chart "cluster-autoscaler" that match. */}}
{{- define "capi-autoscaler-provider.autoscalerValues" -}}
cloudProvider: externalgrpc
# The chart renders no Deployment unless a value of autoDiscovery is set. It has no other effect with this provider.
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
{{- $separate := and .Values.tls.enabled (include "capi-autoscaler-provider.separateIssuers" .) }}
{{- /* Lists, which Helm replaces: it merges a map such as extraVolumeSecrets with that of earlier values, and a volume would be there twice. */}}
extraVolumes:
  - name: capi-autoscaler-provider-config
    configMap:
      name: {{ include "capi-autoscaler-provider.cloudConfigName" . }}
{{- if $separate }}
  # Its own certificate, and the authority of the server, not that of clients.
  - name: capi-autoscaler-provider-tls
    projected:
      sources:
        - secret:
            name: {{ include "capi-autoscaler-provider.clientSecret" . }}
            items:
              - {key: tls.crt, path: tls.crt}
              - {key: tls.key, path: tls.key}
        - secret:
            name: {{ include "capi-autoscaler-provider.serverAuthoritySecret" . }}
            items:
              - {key: ca.crt, path: ca.crt}
{{- else if .Values.tls.enabled }}
  - name: capi-autoscaler-provider-tls
    secret:
      secretName: {{ include "capi-autoscaler-provider.clientSecret" . }}
{{- end }}
extraVolumeMounts:
  - name: capi-autoscaler-provider-config
    mountPath: /etc/capi-autoscaler-provider/config
    readOnly: true
{{- if .Values.tls.enabled }}
  - name: capi-autoscaler-provider-tls
    mountPath: /etc/capi-autoscaler-provider/tls
    readOnly: true
{{- end }}
{{- if include "capi-autoscaler-provider.workloadInCluster" . }}
rbac:
  # Permissions in the workload cluster. Only the provider needs those for Cluster API's objects.
  create: true
{{- else }}
rbac:
  # Cluster Autoscaler acts on the workload cluster by its kubeconfig, and needs no permissions in this one.
  create: false
  serviceAccount:
    create: false
{{- end }}
{{- end -}}
