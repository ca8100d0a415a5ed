# shellcheck shell=sh
# The scenarios of e2e/capd/run, which sources this. They see API objects only, and are those of tests/controllers with the same names,
# as far as Docker's machines have what they need. Each leaves nothing behind.

# shellcheck disable=SC2034  # e2e/capd/run reads it
SCENARIOS="
    pods_bring_nodes_of_the_group_that_fits_and_idle_nodes_go
    annotations_alone_bring_a_group_from_zero_and_back
    idle_nodes_go_at_once_and_busy_ones_stay
    a_paused_group_grows_once_it_goes_on
"

# until_true SECONDS WHAT COMMAND...: repeats a command until it succeeds.
until_true() {
    left=$1 what=$2
    shift 2
    until "$@"; do
        left=$((left - 2))
        if [ "$left" -le 0 ]; then
            echo "$what: not in time" >&2
            return 1
        fi
        sleep 2
    done
    echo "$what"
}

control_plane_is_initialized() {
    [ "$(management -n team-a get cluster prod -o jsonpath='{.status.initialization.controlPlaneInitialized}')" = true ]
}

# nodes_are COUNT: so many Nodes, all of them ready.
nodes_are() {
    ready=$(workload get nodes -o jsonpath='{range .items[*]}{.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}') || return 1
    [ "$(printf '%s\n' "$ready" | grep -c .)" -eq "$1" ] && [ "$(printf '%s\n' "$ready" | grep -c True)" -eq "$1" ]
}

# group_is NAME COUNT: a size of COUNT, and as many Machines, all of them running.
group_is() {
    [ "$(management -n team-a get machinedeployment "$1" -o jsonpath='{.spec.replicas}')" = "$2" ] || return 1
    phases=$(management -n team-a get machines -l "pool=$1" -o jsonpath='{range .items[*]}{.status.phase}{"\n"}{end}') || return 1
    [ "$(printf '%s\n' "$phases" | grep -c .)" -eq "$2" ] && [ "$(printf '%s\n' "$phases" | grep -c Running)" -eq "$2" ]
}

# create_pods COUNT POOL CPU: pods that need Nodes of a pool.
create_pods() {
    number=0
    while [ "$number" -lt "$1" ]; do
        workload apply -f - <<POD
apiVersion: v1
kind: Pod
metadata:
  name: web-$number
  labels: {app: web}
  annotations: {cluster-autoscaler.kubernetes.io/safe-to-evict: "false"}
spec:
  terminationGracePeriodSeconds: 1
  nodeSelector: {node.cluster.x-k8s.io/pool: $2}
  containers:
    - name: web
      image: registry.k8s.io/pause:3.10
      resources: {requests: {cpu: $3, memory: 16Mi}}
POD
        number=$((number + 1))
    done
}

pods_run() {
    phases=$(workload get pods -l app=web -o jsonpath='{range .items[*]}{.status.phase}{"\n"}{end}') || return 1
    [ "$(printf '%s\n' "$phases" | grep -c Running)" -eq "$1" ]
}

delete_pods() { workload delete pods -l app=web --wait=true --timeout=120s; }

pods_bring_nodes_of_the_group_that_fits_and_idle_nodes_go() {
    create_pods 1 workers 100m
    until_true 600 "pod running" pods_run 1
    until_true 300 "one Machine" group_is workers 1
    group_is annotated 0
    delete_pods
    until_true 600 "no Machines" group_is workers 0
    until_true 300 "the control plane's Node alone" nodes_are 1
}

annotations_alone_bring_a_group_from_zero_and_back() {
    # Two don't fit on a Node of one CPU.
    create_pods 2 annotated 600m
    until_true 600 "two Machines" group_is annotated 2
    until_true 300 "pods running" pods_run 2
    group_is workers 0
    delete_pods
    until_true 600 "no Machines" group_is annotated 0
}

machine_of() { management -n team-a get machines -o jsonpath="{.items[?(@.status.nodeRef.name==\"$1\")].metadata.name}"; }

idle_nodes_go_at_once_and_busy_ones_stay() {
    create_pods 1 workers 100m
    until_true 600 "pod running" pods_run 1
    busy=$(workload get pod web-0 -o jsonpath='{.spec.nodeName}')
    kept=$(machine_of "$busy")
    management -n team-a scale machinedeployment workers --replicas=3
    until_true 600 "three Machines" group_is workers 3
    until_true 600 "one Machine" group_is workers 1
    left=$(management -n team-a get machines -l pool=workers -o jsonpath='{.items[*].metadata.name}')
    if [ "$left" != "$kept" ]; then
        echo "$left is left instead of $kept, whose Node is busy" >&2
        return 1
    fi
    delete_pods
    until_true 600 "no Machines" group_is workers 0
}

a_paused_group_grows_once_it_goes_on() {
    management -n team-a annotate machinedeployment workers cluster.x-k8s.io/paused=true
    create_pods 1 workers 100m
    until_true 300 "Cluster Autoscaler has looked at the pod" pod_triggered_nothing
    [ "$(management -n team-a get machinedeployment workers -o jsonpath='{.spec.replicas}')" = 0 ]
    management -n team-a annotate machinedeployment workers cluster.x-k8s.io/paused-
    until_true 600 "pod running" pods_run 1
    delete_pods
    until_true 600 "no Machines" group_is workers 0
}

pod_triggered_nothing() {
    [ -n "$(workload get events --field-selector reason=NotTriggerScaleUp,involvedObject.name=web-0 -o name)" ]
}
