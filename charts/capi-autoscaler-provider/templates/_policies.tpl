{{/* Policies for admission: whom they concern, and which annotations are set aside, as docs/reference/annotations.md has the rules. */}}

{{- define "capi-autoscaler-provider.group" -}}
{{- index .Values.extraArgs "capi-group" | default "cluster.x-k8s.io" -}}
{{- end -}}

{{/* The kinds that can be node groups, in every version. Annotations aren't changed by way of status and scale. */}}
{{- define "capi-autoscaler-provider.policyConstraints" -}}
matchPolicy: Equivalent
resourceRules:
  - apiGroups: [{{ include "capi-autoscaler-provider.group" . }}]
    apiVersions: ["*"]
    operations: [CREATE, UPDATE]
    resources: [machinedeployments, machinesets, machinepools]
{{- end -}}

{{/* CEL: whether the request is one that the log of deletions is kept from. */}}
{{- define "capi-autoscaler-provider.notOfWhoMay" -}}
- name: not-of-who-may
  expression: >-
    !(request.userInfo.username in {{ toJson (uniq .users) }}) &&
    !request.?userInfo.?groups.orValue([]).exists(g, g in {{ toJson .groups }})
{{- if not .creates }}
- name: not-made-anew
  expression: request.operation != 'CREATE'
{{- end }}
{{- end -}}

{{/* Where a policy holds: the namespaces of the release's node groups. */}}
{{- define "capi-autoscaler-provider.policyNamespaces" -}}
{{- if not .Values.rbac.clusterScoped -}}
matchResources:
  namespaceSelector:
    matchExpressions:
      - key: kubernetes.io/metadata.name
        operator: In
        values: {{ include "capi-autoscaler-provider.namespaces" . }}
{{- end -}}
{{- end -}}

{{/* CEL: whether `of`, an object or null, is of the Cluster that is chosen, if one is: another release may serve its neighbour. The
Cluster is found as by the program: by spec.clusterName, else by the label. */}}
{{- define "capi-autoscaler-provider.isOfTheCluster" -}}
{{- $of := .of -}}
{{- $group := include "capi-autoscaler-provider.group" .root -}}
{{ $of }} != null
{{- with .root.Values.autoDiscovery.clusterName }} &&
({{ $of }}.?spec.?clusterName.orValue('') != '' ? {{ $of }}.spec.clusterName : {{ $of }}.metadata.?labels[?'{{ $group }}/cluster-name'].orValue('')) == '{{ . }}'
{{- end -}}
{{- end -}}

{{- define "capi-autoscaler-provider.policyCluster" -}}
{{- if .Values.autoDiscovery.clusterName -}}
- name: of-the-cluster
  expression: >-
    [object, oldObject].exists(o, {{ include "capi-autoscaler-provider.isOfTheCluster" (dict "root" . "of" "o") | nindent 4 | trim }})
{{- end -}}
{{- end -}}

{{/* CEL: whether `of` is a MachineSet of a MachineDeployment, whose annotations are copied to it and not read there. */}}
{{- define "capi-autoscaler-provider.isOwnedSet" -}}
{{- $of := .of -}}
{{ $of }}.kind == 'MachineSet' && {{ $of }}.metadata.?ownerReferences.orValue([]).exists(o,
o.kind == 'MachineDeployment' && o.apiVersion.startsWith('{{ include "capi-autoscaler-provider.group" .root }}/'))
{{- end -}}

{{/* Variables by which `<of>Problems` are the annotations of `of` (now, or before) that are set aside. All is by the program's own
parsers; where CEL can't say a rule it says nothing. A text beyond 16,384 bytes counts as "(", which is right nowhere. */}}
{{- define "capi-autoscaler-provider.setAside" -}}
{{- $of := .of -}}
{{- $group := include "capi-autoscaler-provider.group" .root -}}
{{- $sizes := printf "%s/cluster-api-autoscaler-node-group-" $group -}}
{{- $options := printf "%s/autoscaling-options-" $group -}}
{{- $capacity := "capacity.cluster-autoscaler.kubernetes.io/" -}}
{{- $own := "capacity.capi-autoscaler-provider.io/" -}}
{{- $rollouts := "capi-autoscaler-provider.io/scale-down-while-rolling-out" -}}
{{- $grace := "capi-autoscaler-provider.io/capacity-error-grace" -}}
{{- $thresholds := list "scaledownutilizationthreshold" "scaledowngpuutilizationthreshold" -}}
{{- $times := list "scaledownunneededtime" "scaledownunreadytime" "maxnodeprovisiontime" "maxnodestartuptime" -}}
{{- $switches := list "zeroormaxnodescaling" "ignoredaemonsetsutilization" -}}
{{- $known := list "cpu" "memory" "ephemeral-disk" "maxPods" "gpu-type" "gpu-count" "labels" "taints" "dra-driver" "csi-driver" -}}
{{- $knownOwn := list "overhead" "resources" "price-per-hour" "zone-from-failure-domain" -}}
{{- /* Value of an annotation that is absent, where an empty one is wrong. */ -}}
{{- $absent := dict (printf "%smin-size" $sizes) "0" (printf "%smax-size" $sizes) "0" (printf "%szone-from-failure-domain" $own) "true" $rollouts "false" -}}
{{- $keys := list (printf "%smin-size" $sizes) (printf "%smax-size" $sizes) $rollouts $grace -}}
{{- range concat $thresholds $times $switches -}}{{- $keys = append $keys (printf "%s%s" $options .) -}}{{- end -}}
{{- range $known -}}{{- $keys = append $keys (printf "%s%s" $capacity .) -}}{{- end -}}
{{- range $knownOwn -}}{{- $keys = append $keys (printf "%s%s" $own .) -}}{{- end -}}
{{- /* Parts of regular expressions. */ -}}
{{- $space := `[\s\x0b\x{85}\p{Z}]*` -}}
{{- $name := `[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?` -}}
{{- $key := printf `([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?%s` $name -}}
{{- $driver := `[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?(\.[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?)*` -}}
{{- $suffix := `([numkMGTPE]|[KMGTPE]i|[eE][+-]?0*[0-9]{1,19})?` -}}
{{- $zero := `(0+(\.0*)?|\.0+)` -}}
{{- $quantity := printf `(\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)|-%s)%s` $zero $suffix -}}
{{- /* Numbers that are surely not whole, without a suffix and in thousandths, millionths and billionths. */ -}}
{{- $broken := `\+?[0-9]{0,20}(\.[0-9]{0,8}[1-9]0*|[1-9][0-9]{0,2}m|[1-9][0-9]{0,5}u|[1-9][0-9]{0,8}n)` -}}
{{- $time := `[+-]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|Μs|ms|s|m|h))+)` -}}
{{- /* Below 0, or longer than 292 years, whatever follows. */ -}}
{{- $noTime := `^-[0-9]*[1-9]|(^|[^0-9.])0*([1-9][0-9]{7,}(\.[0-9]*)?h|[1-9][0-9]{10,}(\.[0-9]*)?[sm]([0-9.]|$))` -}}
{{- $list := printf `^%s(%s%s)?(,%s(%s%s)?)*$` $space "%s" $space $space "%s" $space -}}
{{- $value := printf "variables.%sRead['%s']" $of "%s" -}}
{{- $cap := printf $value (printf "%s%s" $capacity "%s") -}}
{{- $ownCap := printf $value (printf "%s%s" $own "%s") -}}
- name: {{ $of }}Read
  expression: |-
    {
    {{- range $keys }}
      '{{ . }}': [variables.{{ $of }}[?'{{ . }}'].orValue('{{ get $absent . }}')].map(t, size(bytes(t)) > 16384 ? '(' : t)[0],
    {{- end }}
    }
{{- $min := printf $value (printf "%smin-size" $sizes) }}
{{- $max := printf $value (printf "%smax-size" $sizes) }}
- name: {{ $of }}Sizes
  expression: |-
    [{{ $min }}, {{ $max }}].map(t, t.matches(r'^(\+?0*[0-9]{1,10}|-0+)$') ? int(t.replace('+', '')) : -1)
- name: {{ $of }}Bounds
  expression: |-
    variables.{{ $of }}Sizes[0] < 0 || variables.{{ $of }}Sizes[0] > 2147483647 ? ['{{ $sizes }}min-size'] :
    variables.{{ $of }}Sizes[1] < variables.{{ $of }}Sizes[0] || variables.{{ $of }}Sizes[1] > 2147483647 ? ['{{ $sizes }}max-size'] : []
# Of what is no node group nothing else is read. A thousand annotations are looked through.
- name: {{ $of }}Keys
  expression: |-
    variables.{{ $of }}Sizes[1] > 0 && !('cluster.x-k8s.io/paused' in variables.{{ $of }}) && size(variables.{{ $of }}) <= 1000 ?
    variables.{{ $of }}.map(k, k).filter(k, k.startsWith('{{ $options }}') || k.startsWith('{{ $capacity }}') ||
    k.startsWith('{{ $own }}') || k in ['{{ $rollouts }}', '{{ $grace }}']) : []
- name: {{ $of }}Unknown
  expression: |-
    variables.{{ $of }}Keys.filter(k, !(k in variables.{{ $of }}Read) && !(k.startsWith('{{ $options }}') && variables.{{ $of }}[k] == ''))
- name: {{ $of }}Options
  expression: |-
    {{- $lower := printf "variables.%sRead[k].lowerAscii()" $of }}
    variables.{{ $of }}Keys.filter(k, k in variables.{{ $of }}Read && k.startsWith('{{ $options }}') && variables.{{ $of }}Read[k] != '' && !(
      k.endsWith('threshold') ? {{ $lower }}.matches(r'^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]+)?$') :
      k.endsWith('time') ? {{ $lower }}.matches(r'^{{ $time }}$') && !{{ $lower }}.matches(r'{{ $noTime }}') :
      {{ $lower }} in ['true', 't', '1', 'false', 'f', '0']))
- name: {{ $of }}Amounts
  expression: |-
    {{- $type := printf $cap "gpu-type" }}{{ $count := printf $cap "gpu-count" }}{{ $dra := printf $cap "dra-driver" }}
    (['{{ $capacity }}cpu', '{{ $capacity }}memory'].filter(k, variables.{{ $of }}Read[k] != '' &&
      (!variables.{{ $of }}Read[k].matches(r'^{{ $quantity }}$') || variables.{{ $of }}Read[k].matches(r'^[+-]?{{ $zero }}{{ $suffix }}$')))) +
    ({{ printf $cap "ephemeral-disk" }}.matches(r'^({{ $quantity }})?$') ? [] : ['{{ $capacity }}ephemeral-disk']) +
    ({{ printf $cap "maxPods" }}.matches(r'^(\+?0*[0-9]{1,19}|-0+)?$') ? [] : ['{{ $capacity }}maxPods']) +
    ({{ $type }} != '' && ({{ $count }} == '' || !{{ $type }}.matches(r'^{{ $key }}$') || size({{ $type }}.split('/')[0]) > 253) ?
      ['{{ $capacity }}gpu-type'] : []) +
    ({{ $count }} != '' && ({{ $type }} == '' ? {{ $dra }} == '' || !{{ $count }}.matches(r'^{{ $quantity }}$') || {{ $count }}.matches(r'^{{ $broken }}$') :
      {{ $type }}.matches(r'^{{ $key }}$') && size({{ $type }}.split('/')[0]) <= 253 &&
      (!{{ $count }}.matches(r'^{{ $quantity }}$') || {{ $count }}.matches(r'^{{ $broken }}$'))) ? ['{{ $capacity }}gpu-count'] : []) +
    ({{ $dra }} != '' && (!{{ $dra }}.lowerAscii().matches(r'^{{ $driver }}$') || {{ $dra }}.lowerAscii() != {{ $dra }} || size({{ $dra }}) > 63 ||
      {{ $count }} == '' || {{ $count }}.matches(r'^\+?0*([1-9][0-9]{3,}|[2-9][0-9]{2}|1[3-9][0-9]|129)$')) ? ['{{ $capacity }}dra-driver'] : [])
- name: {{ $of }}Labels
  expression: |-
    {{- $entry := printf "%s=(%s)?" $key $name }}
    {{ printf $cap "labels" }}.matches(r'{{ printf $list $entry $entry }}') &&
    !{{ printf $cap "labels" }}.matches(r'(^|,){{ $space }}[^/=,]{254,}/') ? [] : ['{{ $capacity }}labels']
- name: {{ $of }}Taints
  expression: |-
    {{- $entry := printf "%s(=(%s)?)?:(NoSchedule|PreferNoSchedule|NoExecute)" $key $name }}
    {{ printf $cap "taints" }}.matches(r'{{ printf $list $entry $entry }}') &&
    !{{ printf $cap "taints" }}.matches(r'(^|,){{ $space }}[^/=:,]{254,}/') ? [] : ['{{ $capacity }}taints']
- name: {{ $of }}Drivers
  expression: |-
    {{- $entry := printf `%s=(\+?0*[0-9]{1,10}|-0+)` $driver }}
    {{ printf $cap "csi-driver" }}.matches(r'{{ printf $list $entry $entry }}') &&
    !{{ printf $cap "csi-driver" }}.matches(r'(^|,){{ $space }}[^=,]{64,}=') ? [] : ['{{ $capacity }}csi-driver']
- name: {{ $of }}Lists
  expression: |-
    {{- $entry := printf "%s=%s" $key $quantity }}
    ['{{ $own }}resources', '{{ $own }}overhead'].filter(k, !variables.{{ $of }}Read[k].matches(r'{{ printf $list $entry $entry }}') ||
      variables.{{ $of }}Read[k].matches(r'(^|,){{ $space }}[^/=,]{254,}/') || (k.endsWith('resources') &&
      variables.{{ $of }}Read[k].matches(r'(^|,){{ $space }}((cpu|memory|ephemeral-storage|pods)=|[^=,]+={{ $broken }}{{ $space }}(,|$))')))
- name: {{ $of }}Others
  expression: |-
    {{- $price := printf "%s.trim()" (printf $ownCap "price-per-hour") }}{{ $wait := printf "%s.trim()" (printf $value $grace) }}
    ({{ $price }} == '' || ({{ $price }}.matches(r'^0*[0-9]{1,20}(\.[0-9]+)?$') && double({{ $price }}) <= 1000000000.0) ? [] : ['{{ $own }}price-per-hour']) +
    ({{ printf $ownCap "zone-from-failure-domain" }} in ['true', 'false'] || variables.{{ $of }}Domain == '' ? [] : ['{{ $own }}zone-from-failure-domain']) +
    ({{ printf $value $rollouts }} in ['true', 'false'] ? [] : ['{{ $rollouts }}']) +
    ({{ $wait }} == '' || {{ $wait }}.lowerAscii() == 'never' ||
      ({{ $wait }}.matches(r'^{{ $time }}$') && !{{ $wait }}.matches(r'{{ $noTime }}')) ? [] : ['{{ $grace }}'])
- name: {{ $of }}Problems
  expression: |-
    size(variables.{{ $of }}Bounds) > 0 ? variables.{{ $of }}Bounds : size(variables.{{ $of }}Keys) == 0 ? [] : variables.{{ $of }}Unknown +
    variables.{{ $of }}Options + variables.{{ $of }}Amounts + variables.{{ $of }}Labels + variables.{{ $of }}Taints + variables.{{ $of }}Drivers +
    variables.{{ $of }}Lists + variables.{{ $of }}Others
{{- end -}}
