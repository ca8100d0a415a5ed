//! Kubernetes' controllers of Pods, as far as a run needs them: Deployments, ReplicaSets, StatefulSets, Jobs and
//! DaemonSets have their Pods, budgets are counted, kubelets start and end Pods, and Pods go with their Node.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::{Duration, Instant},
};

use rules::GoDuration;
use sandbox::{
    Object,
    api::{Api, DeleteOptions, LabelSelector, PatchKind, Resource, Subresource},
    controlled_by, suffix,
};
use serde_json::{Map, Value, json};

use crate::{
    scheduler::{DEFAULT_SCHEDULER, belongs_on, time_of},
    state::{State, has_condition, is_finished, list, node_of, patch_status, set_condition},
};

/// The annotation of a Job, or of its Pods, that states how long a Pod runs.
pub(crate) const DURATION: &str = "whatif.capi-autoscaler-provider.io/duration";

/// The annotation of a Pod that decides which one goes when there are too many.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
/// The label by which the Pods of a Deployment's ReplicaSets differ.
const TEMPLATE_HASH: &str = "pod-template-hash";
/// The annotation by which the ReplicaSets of a Deployment are ordered.
const REVISION: &str = "deployment.kubernetes.io/revision";

/// The taints that the DaemonSet controller tolerates.
const DAEMON_TOLERATIONS: [(&str, &str); 6] = [
    ("not-ready", "NoExecute"),
    ("unreachable", "NoExecute"),
    ("disk-pressure", "NoSchedule"),
    ("memory-pressure", "NoSchedule"),
    ("pid-pressure", "NoSchedule"),
    ("unschedulable", "NoSchedule"),
];

/// The priorities that every cluster has.
const SYSTEM_PRIORITIES: [(&str, i64); 2] =
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];

/// What an API server sets in new Pods by the names of their classes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Priorities {
    by_class: BTreeMap<String, Class>,
    default: Class,
    /// The RuntimeClasses by name.
    runtimes: BTreeMap<String, Value>,
}

/// What a PriorityClass gives to Pods.
#[derive(Clone, Debug, Default)]
struct Class {
    priority: i64,
    /// Whether they take the place of others.
    preemption: Option<String>,
}

impl Priorities {
    pub(crate) fn of(objects: &[Value]) -> Self {
        let mut priorities = Self::default();
        let system = |(class, priority): (&str, i64)| (class.to_owned(), Class { priority, preemption: None });
        priorities.by_class.extend(SYSTEM_PRIORITIES.map(system));
        for object in objects.iter().filter(|object| object.kind() == "PriorityClass") {
            let preemption = object.text("/preemptionPolicy").map(str::to_owned);
            let class = Class { priority: object.number("/value"), preemption };
            if object["globalDefault"] == true {
                priorities.default = class.clone();
            }
            priorities.by_class.insert(object.name().to_owned(), class);
        }
        let runtimes = objects.iter().filter(|object| object.kind() == "RuntimeClass");
        priorities.runtimes = runtimes.map(|class| (class.name().to_owned(), class.clone())).collect();
        priorities
    }

    /// Fills in what an API server sets in a new Pod, as far as schedulers read it.
    pub(crate) fn admit(&self, pod: &mut Value) {
        let Some(spec) = pod["spec"].as_object_mut() else { return };
        if spec.get("priority").is_none_or(Value::is_null) {
            let class = spec.get("priorityClassName").and_then(Value::as_str);
            let class = class.and_then(|class| self.by_class.get(class)).unwrap_or(&self.default);
            spec.insert("priority".to_owned(), json!(class.priority));
            if let Some(preemption) = &class.preemption {
                spec.entry("preemptionPolicy").or_insert_with(|| json!(preemption));
            }
        }
        let runtime = spec.get("runtimeClassName").and_then(Value::as_str);
        if let Some(class) = runtime.and_then(|name| self.runtimes.get(name)) {
            run_by(spec, class);
        }
        let defaults = [
            ("schedulerName", json!(DEFAULT_SCHEDULER)),
            ("restartPolicy", json!("Always")),
            ("terminationGracePeriodSeconds", json!(30)),
        ];
        for (field, value) in defaults {
            spec.entry(field).or_insert(value);
        }
        for field in ["containers", "initContainers"] {
            let containers = spec.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten();
            for resources in containers.filter_map(|container| container.get_mut("resources")?.as_object_mut()) {
                limits_as_requests(resources);
            }
        }
    }
}

/// Adds what a RuntimeClass adds to its Pods.
fn run_by(spec: &mut Map<String, Value>, class: &Value) {
    spec.entry("overhead").or_insert_with(|| json!(class.map("/overhead/podFixed")));
    let selector = class.map("/scheduling/nodeSelector");
    if let Some(selected) = spec.entry("nodeSelector").or_insert_with(|| json!({})).as_object_mut() {
        selected.extend(selector);
    }
    if let Some(tolerated) = spec.entry("tolerations").or_insert_with(|| json!([])).as_array_mut() {
        let new: Vec<_> = class.list("/scheduling/tolerations").iter().filter(|it| !tolerated.contains(it)).collect();
        tolerated.extend(new.into_iter().cloned());
    }
}

fn limits_as_requests(resources: &mut Map<String, Value>) {
    let limits = resources.get("limits").and_then(Value::as_object).cloned().unwrap_or_default();
    if limits.is_empty() {
        return;
    }
    let requests = resources.entry("requests").or_insert_with(|| json!({}));
    if let Some(requests) = requests.as_object_mut() {
        for (resource, limit) in limits {
            requests.entry(resource).or_insert(limit);
        }
    }
}

#[derive(Debug)]
pub(crate) struct Workloads {
    speed: u32,
    priorities: Priorities,
    /// The number of names that were made.
    names: u64,
    /// The ends of Pods that state how long they run, by their uids.
    ends: HashMap<String, Instant>,
    /// Whether a DaemonSet has a Pod on a Node, by their uids, with the versions that were looked at.
    belongs: HashMap<(String, String), (String, bool)>,
    /// The Pods of which the budgets were last counted.
    counted: Option<u64>,
}

/// The Pods of each controller, by its uid.
type ByOwner<'a> = HashMap<&'a str, Vec<&'a Arc<Value>>>;

impl Workloads {
    pub(crate) fn new(speed: u32, priorities: Priorities) -> Self {
        let (ends, belongs) = (HashMap::new(), HashMap::new());
        Self { speed, priorities, names: 0, ends, belongs, counted: None }
    }

    /// Returns true if a Pod will end by itself.
    pub(crate) fn has_ends(&self) -> bool {
        !self.ends.is_empty()
    }

    pub(crate) fn act(&mut self, api: &Api, state: &State, now: Instant) {
        self.run_pods(api, state, now);
        let mut by_owner: ByOwner<'_> = HashMap::new();
        for pod in &state.pods {
            if let Some(uid) = pod.controller().and_then(|owner| owner["uid"].as_str()) {
                by_owner.entry(uid).or_default().push(pod);
            }
        }
        Self::deployments(api);
        for kind in ["replicasets", "replicationcontrollers"] {
            let resource = if kind == "replicasets" { apps(kind) } else { Resource::core(kind) };
            for set in list(api, &resource) {
                self.replicas(api, &set, by_owner.get(set.uid()).map(Vec::as_slice).unwrap_or_default());
            }
        }
        for set in list(api, &apps("statefulsets")) {
            self.ordinals(api, &set, by_owner.get(set.uid()).map(Vec::as_slice).unwrap_or_default());
        }
        for job in list(api, &jobs()) {
            self.job(api, &job, by_owner.get(job.uid()).map(Vec::as_slice).unwrap_or_default());
        }
        for set in list(api, &apps("daemonsets")) {
            self.daemons(api, &set, by_owner.get(set.uid()).map(Vec::as_slice).unwrap_or_default(), state);
        }
        self.budgets(api, state);
    }

    /// Starts and ends Pods as kubelets do, and removes those whose Node has gone.
    fn run_pods(&mut self, api: &Api, state: &State, now: Instant) {
        let nodes: BTreeSet<&str> = state.nodes.iter().map(|node| node.name()).collect();
        let jobs = list(api, &jobs());
        let of_jobs: HashMap<&str, Duration> =
            jobs.iter().filter_map(|job| Some((job.uid(), duration_of(job)?))).collect();
        let of_job = |pod: &Value| of_jobs.get(pod.controller()?["uid"].as_str()?).copied();
        let pods = Resource::core("pods");
        let mut ends = HashMap::new();
        for pod in &state.pods {
            let Some(node) = node_of(pod) else { continue };
            if pod.deleting() || (!nodes.contains(node) && !is_finished(pod)) {
                delete(api, pod);
            } else if !is_finished(pod) {
                let is_new = matches!(pod["status"]["phase"].as_str(), None | Some("Pending"));
                if is_new {
                    start(api, &pods, pod);
                }
                let Some(runs) = duration_of(pod).or_else(|| of_job(pod)) else { continue };
                // A Pod that ran before the beginning runs on as long as a new one.
                let end = self.ends.get(pod.uid()).copied().unwrap_or(now + runs / self.speed);
                if is_new || end > now {
                    ends.insert(pod.uid().to_owned(), end);
                } else {
                    let condition = json!({"type": "Ready", "status": "False", "reason": "PodCompleted"});
                    set_condition(api, &pods, pod, &condition, Some("Succeeded"));
                }
            }
        }
        self.ends = ends;
    }

    /// Gives each Deployment's size to its ReplicaSets: the newest gets what is missing, and gives up first what is too
    /// much. A rollout goes no further: it isn't simulated.
    fn deployments(api: &Api) {
        let sets = list(api, &apps("replicasets"));
        for deployment in list(api, &apps("deployments")) {
            let replicas = deployment.integer("/spec/replicas").unwrap_or(1);
            let mut owned: Vec<_> =
                sets.iter().filter(|set| set.controller().is_some_and(|it| it["uid"] == deployment.uid())).collect();
            if owned.is_empty() {
                let _ = api.create(&apps("replicasets"), replica_set_of(&deployment, replicas));
            }
            owned.sort_by_key(|set| {
                let revision = set.annotation(REVISION).and_then(|text| text.parse::<i64>().ok()).unwrap_or_default();
                Reverse((revision, replicas_of(set)))
            });
            let mut missing = replicas - owned.iter().map(|set| replicas_of(set)).sum::<i64>();
            for set in owned {
                let size = (replicas_of(set) + missing).max(0);
                if size != replicas_of(set) {
                    missing -= size - replicas_of(set);
                    let body = json!({"spec": {"replicas": size}});
                    let (namespace, name) = (set.namespace(), set.name());
                    // A ReplicaSet that has gone needs no size.
                    let _ = api.patch(&apps("replicasets"), namespace, name, PatchKind::Merge, Subresource::Main, body);
                }
            }
        }
    }

    fn replicas(&mut self, api: &Api, set: &Arc<Value>, pods: &[&Arc<Value>]) {
        let wanted = usize::try_from(replicas_of(set)).unwrap_or_default();
        let mut active: Vec<_> = pods.iter().filter(|pod| is_active(pod)).collect();
        for _ in active.len()..wanted {
            let name = self.name(set.name());
            self.create(api, set, &name, |_| {});
        }
        if active.len() > wanted {
            let mut beside: HashMap<&str, usize> = HashMap::new();
            for pod in &active {
                *beside.entry(node_of(pod).unwrap_or_default()).or_default() += 1;
            }
            active.sort_by_cached_key(|pod| {
                let cost = pod.annotation(DELETION_COST).and_then(|text| text.parse::<i64>().ok()).unwrap_or_default();
                let node = node_of(pod);
                let created = pod.text("/metadata/creationTimestamp").unwrap_or_default().to_owned();
                let others = node.and_then(|node| beside.get(node)).copied().unwrap_or_default();
                (
                    node.is_some(),
                    has_condition(pod, "Ready"),
                    cost,
                    Reverse(others),
                    Reverse(created),
                    pod.name().to_owned(),
                )
            });
            for pod in &active[..active.len() - wanted] {
                delete(api, pod);
            }
        }
    }

    fn ordinals(&mut self, api: &Api, set: &Arc<Value>, pods: &[&Arc<Value>]) {
        let start = set.number("/spec/ordinals/start");
        let wanted = start..start + set.integer("/spec/replicas").unwrap_or(1);
        let ordinal = |pod: &Value| pod.name().rsplit_once('-').and_then(|(_, number)| number.parse::<i64>().ok());
        for pod in pods.iter().filter(|pod| is_active(pod)) {
            if ordinal(pod).is_some_and(|ordinal| !wanted.contains(&ordinal)) {
                delete(api, pod);
            }
        }
        let in_parallel = set["spec"]["podManagementPolicy"] == "Parallel";
        for number in wanted {
            let present = pods.iter().find(|pod| ordinal(pod) == Some(number));
            if present.is_none() {
                let claims = set.list("/spec/volumeClaimTemplates").to_vec();
                self.create(api, set, &format!("{}-{number}", set.name()), |pod| add_claims(pod, &claims));
            }
            let is_ready = present.is_some_and(|pod| has_condition(pod, "Ready") && !pod.deleting());
            if !in_parallel && !is_ready {
                return;
            }
        }
    }

    fn job(&mut self, api: &Api, job: &Arc<Value>, pods: &[&Arc<Value>]) {
        if has_condition(job, "Complete") || has_condition(job, "Failed") {
            return;
        }
        let number = |pointer| job.integer(pointer).and_then(|number| usize::try_from(number).ok());
        let (parallel, completions) = (number("/spec/parallelism").unwrap_or(1), number("/spec/completions"));
        let ended = pods.iter().filter(|pod| pod["status"]["phase"] == "Succeeded").count();
        let done = number("/status/succeeded").unwrap_or_default() + ended;
        let mut active: Vec<_> = pods.iter().filter(|pod| is_active(pod)).collect();
        // Without a number of completions a Job is complete once one of its Pods has succeeded, and none runs.
        if completions.map_or(done > 0 && active.is_empty(), |all| done >= all) {
            let complete = json!({"type": "Complete", "status": "True", "lastTransitionTime": time_of(api)});
            set_condition(api, &jobs(), job, &complete, None);
            return;
        }
        let wanted = match completions {
            _ if job["spec"]["suspend"] == true => 0,
            Some(all) => parallel.min(all - done),
            None if done > 0 => active.len(),
            None => parallel,
        };
        for _ in active.len()..wanted {
            let name = self.name(job.name());
            self.create(api, job, &name, |_| {});
        }
        active.sort_by_key(|pod| node_of(pod).is_none());
        for pod in active.iter().skip(wanted) {
            delete(api, pod);
        }
    }

    fn daemons(&mut self, api: &Api, set: &Arc<Value>, pods: &[&Arc<Value>], state: &State) {
        let mut there: BTreeSet<&str> = BTreeSet::new();
        for pod in pods.iter().filter(|pod| !is_finished(pod)) {
            there.extend(node_of(pod).or_else(|| chosen_node(pod)));
        }
        let mut model = None;
        for node in &state.nodes {
            let version = |object: &Value| object.text("/metadata/resourceVersion").unwrap_or_default().to_owned();
            if there.contains(node.name()) {
                continue;
            }
            let seen = format!("{} {}", version(set), version(node));
            let key = (set.uid().to_owned(), node.uid().to_owned());
            let belongs = match self.belongs.get(&key) {
                Some((known, belongs)) if *known == seen => *belongs,
                _ => {
                    let model = model.get_or_insert_with(|| {
                        let mut pod = pod_of(set, "");
                        tolerate_as_daemon(&mut pod);
                        pod
                    });
                    let belongs = belongs_on(model, node);
                    self.belongs.insert(key, (seen, belongs));
                    belongs
                }
            };
            if belongs {
                let name = self.name(set.name());
                self.create(api, set, &name, |pod| {
                    tolerate_as_daemon(pod);
                    choose_node(pod, node.name());
                });
            }
        }
        let nodes: BTreeSet<&str> = state.nodes.iter().map(|node| node.name()).collect();
        for pod in pods.iter().filter(|pod| node_of(pod).is_none()) {
            if chosen_node(pod).is_some_and(|node| !nodes.contains(node)) {
                delete(api, pod);
            }
        }
    }

    /// Counts how many Pods of each budget may be evicted.
    fn budgets(&mut self, api: &Api, state: &State) {
        let resource = Resource::new("policy", "v1", "poddisruptionbudgets");
        let budgets = list(api, &resource);
        if budgets.is_empty() {
            return;
        }
        let mut hasher = DefaultHasher::new();
        for pod in &state.pods {
            (pod.uid(), pod["status"]["phase"].as_str(), pod.deleting(), has_condition(pod, "Ready")).hash(&mut hasher);
        }
        let counted = hasher.finish();
        if self.counted.replace(counted) == Some(counted) {
            return;
        }
        for budget in budgets {
            let Some(selector) = LabelSelector::of_object(&budget["spec"]["selector"]) else { continue };
            let is_of = |pod: &&Arc<Value>| pod.namespace() == budget.namespace() && selector.matches(pod);
            let pods: Vec<_> = state.pods.iter().filter(is_of).filter(|pod| !is_finished(pod)).collect();
            let expected = i64::try_from(pods.len()).unwrap_or_default();
            let is_healthy = |pod: &&&Arc<Value>| !pod.deleting() && has_condition(pod, "Ready");
            let healthy = i64::try_from(pods.iter().filter(is_healthy).count()).unwrap_or_default();
            let allowed = (healthy - needed(&budget["spec"], expected)).max(0);
            if budget.integer("/status/disruptionsAllowed") != Some(allowed) {
                let status = json!({
                    "disruptionsAllowed": allowed, "currentHealthy": healthy, "expectedPods": expected,
                    "desiredHealthy": needed(&budget["spec"], expected),
                });
                patch_status(api, &resource, &budget, &status);
            }
        }
    }

    fn name(&mut self, owner: &str) -> String {
        self.names += 1;
        format!("{owner}-{}", suffix(self.names))
    }

    fn create(&self, api: &Api, owner: &Value, name: &str, change: impl FnOnce(&mut Value)) {
        let mut pod = pod_of(owner, name);
        change(&mut pod);
        self.priorities.admit(&mut pod);
        // A namespace that is going takes no Pods.
        let _ = api.create(&Resource::core("pods"), pod);
    }
}

fn apps(plural: &'static str) -> Resource {
    Resource::new("apps", "v1", plural)
}

fn jobs() -> Resource {
    Resource::new("batch", "v1", "jobs")
}

/// Returns the number of Pods that a controller wants.
fn replicas_of(controller: &Value) -> i64 {
    controller.integer("/spec/replicas").unwrap_or(1)
}

fn is_active(pod: &Value) -> bool {
    !is_finished(pod) && !pod.deleting()
}

/// Ends a Pod at once. One that has gone already is gone.
fn delete(api: &Api, pod: &Value) {
    let options = DeleteOptions { grace: Some(0), uid: Some(pod.uid().to_owned()), ..DeleteOptions::default() };
    let _ = api.delete(&Resource::core("pods"), pod.namespace(), pod.name(), &options);
}

fn start(api: &Api, pods: &Resource, pod: &Value) {
    let now = time_of(api);
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now});
    let conditions: Vec<_> =
        ["PodScheduled", "Initialized", "ContainersReady", "Ready"].iter().map(|kind| condition(kind)).collect();
    patch_status(api, pods, pod, &json!({"phase": "Running", "startTime": now, "conditions": conditions}));
}

fn duration_of(object: &Value) -> Option<Duration> {
    let nanos = object.annotation(DURATION)?.parse::<GoDuration>().ok()?.as_nanos();
    Some(Duration::from_nanos(u64::try_from(nanos).ok()?))
}

/// Returns a new Pod of a controller's template.
fn pod_of(owner: &Value, name: &str) -> Value {
    let template = &owner["spec"]["template"];
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": owner.namespace(),
            "labels": template["metadata"].get("labels").cloned().unwrap_or_else(|| json!({})),
            "annotations": template["metadata"].get("annotations").cloned().unwrap_or_else(|| json!({})),
            "ownerReferences": [controlled_by(owner)],
        },
        "spec": template["spec"],
    })
}

fn replica_set_of(deployment: &Value, replicas: i64) -> Value {
    let mut hasher = DefaultHasher::new();
    deployment["spec"]["template"].to_string().hash(&mut hasher);
    let hash = suffix(hasher.finish());
    let mut set = json!({
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": format!("{}-{hash}", deployment.name()),
            "namespace": deployment.namespace(),
            "labels": deployment["spec"]["template"]["metadata"].get("labels").cloned().unwrap_or_else(|| json!({})),
            "annotations": { REVISION: "1" },
            "ownerReferences": [controlled_by(deployment)],
        },
        "spec": {
            "replicas": replicas,
            "selector": deployment["spec"].get("selector").cloned().unwrap_or_else(|| json!({})),
            "template": deployment["spec"]["template"],
        },
    });
    set["metadata"]["labels"][TEMPLATE_HASH] = json!(hash);
    set["spec"]["selector"]["matchLabels"][TEMPLATE_HASH] = json!(hash);
    set["spec"]["template"]["metadata"]["labels"][TEMPLATE_HASH] = json!(hash);
    set
}

/// Adds the volumes of a StatefulSet's claim templates.
fn add_claims(pod: &mut Value, claims: &[Value]) {
    let owner = pod.name().to_owned();
    let mut volumes = pod["spec"]["volumes"].as_array().cloned().unwrap_or_default();
    for claim in claims {
        let name = format!("{}-{owner}", claim.name());
        volumes.push(json!({"name": claim.name(), "persistentVolumeClaim": {"claimName": name}}));
    }
    if !volumes.is_empty() {
        pod["spec"]["volumes"] = json!(volumes);
    }
}

fn tolerate_as_daemon(pod: &mut Value) {
    let mut tolerations = pod["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
    tolerations.extend(DAEMON_TOLERATIONS.map(
        |(taint, effect)| json!({"key": format!("node.kubernetes.io/{taint}"), "operator": "Exists", "effect": effect}),
    ));
    pod["spec"]["tolerations"] = json!(tolerations);
}

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

/// Lets a DaemonSet's Pod run on one Node alone, as its controller does.
fn choose_node(pod: &mut Value, node: &str) {
    let fields = json!([{"key": "metadata.name", "operator": "In", "values": [node]}]);
    let required = &mut pod["spec"]["affinity"]["nodeAffinity"][REQUIRED];
    match required["nodeSelectorTerms"].as_array_mut().filter(|terms| !terms.is_empty()) {
        Some(terms) => terms.iter_mut().for_each(|term| term["matchFields"] = fields.clone()),
        None => *required = json!({"nodeSelectorTerms": [{"matchFields": fields}]}),
    }
}

/// Returns the Node that [`choose_node`] chose.
fn chosen_node(pod: &Value) -> Option<&str> {
    let terms =
        pod.list("/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms");
    terms.first()?.text("/matchFields/0/values/0")
}

/// Returns the number of Pods that a budget keeps.
fn needed(spec: &Value, expected: i64) -> i64 {
    let amount = |value: &Value| match value {
        Value::String(text) => {
            let percent: i64 = text.strip_suffix('%')?.trim().parse().ok()?;
            Some((expected * percent + 99) / 100)
        }
        other => other.as_i64(),
    };
    match (amount(&spec["minAvailable"]), amount(&spec["maxUnavailable"])) {
        (Some(least), _) => least,
        (None, Some(most)) => (expected - most).max(0),
        (None, None) => 0,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use sandbox::clock::Clock;

    use super::*;

    struct World {
        api: Api,
        workloads: Workloads,
    }

    impl World {
        fn new(objects: Vec<Value>) -> Self {
            let api = Api::new(Clock::real());
            api.define_workload_kinds();
            let priorities = Priorities::of(&objects);
            api.load_values(objects).unwrap();
            Self { api, workloads: Workloads::new(1, priorities) }
        }

        fn act(&mut self) -> Vec<Arc<Value>> {
            self.act_at(Instant::now())
        }

        fn act_at(&mut self, now: Instant) -> Vec<Arc<Value>> {
            for _ in 0..4 {
                self.workloads.act(&self.api, &State::read(&self.api), now);
            }
            State::read(&self.api).pods
        }

        fn bind_all(&self, node: &str) {
            for pod in State::read(&self.api).pods.iter().filter(|pod| node_of(pod).is_none()) {
                self.api.bind(pod.namespace(), pod.name(), &json!({"target": {"name": node}})).unwrap();
            }
        }
    }

    fn node(name: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    }

    fn workload(kind: &str, spec: &Value) -> Value {
        let group = if kind == "Job" { "batch/v1" } else { "apps/v1" };
        let mut object = json!({
            "apiVersion": group, "kind": kind, "metadata": {"name": "web", "namespace": "shop"},
            "spec": {
                "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "a"}]}},
            },
        });
        json_patch::merge(&mut object, &json!({ "spec": spec }));
        object
    }

    #[rstest]
    #[case::deployment("Deployment", json!({"replicas": 3}), 3)]
    #[case::replica_set("ReplicaSet", json!({}), 1)]
    #[case::in_order("StatefulSet", json!({"replicas": 3}), 1)]
    #[case::in_parallel("StatefulSet", json!({"replicas": 3, "podManagementPolicy": "Parallel"}), 3)]
    #[case::job("Job", json!({"parallelism": 2, "completions": 5}), 2)]
    #[case::suspended("Job", json!({"suspend": true}), 0)]
    #[case::daemon_set("DaemonSet", json!({}), 2)]
    fn a_controller_has_its_pods(#[case] kind: &str, #[case] spec: Value, #[case] count: usize) {
        let mut world = World::new(vec![node("a"), node("b"), workload(kind, &spec)]);
        assert_eq!(world.act().len(), count);
        assert_eq!(world.act().len(), count, "and no more");
    }

    #[test]
    fn evicted_pods_are_replaced_and_pods_go_with_their_node() {
        let mut world = World::new(vec![node("a"), workload("ReplicaSet", &json!({"replicas": 2}))]);
        world.act();
        world.bind_all("a");
        let before = world.act();
        assert!(before.iter().all(|pod| pod["status"]["phase"] == "Running"));
        world.api.evict("shop", before[0].name(), &DeleteOptions::default()).unwrap();
        let after = world.act();
        assert_eq!((after.len(), after.iter().filter(|pod| node_of(pod).is_some()).count()), (2, 1));
        world.api.delete(&Resource::core("nodes"), "", "a", &DeleteOptions::default()).unwrap();
        let after = world.act();
        assert_eq!((after.len(), after.iter().filter(|pod| node_of(pod).is_some()).count()), (2, 0));
    }

    #[rstest]
    #[case("True", 2)]
    #[case("False", 1)]
    fn a_stateful_set_waits_for_each_pod_until_it_is_ready(#[case] is_ready: &str, #[case] count: usize) {
        let mut set = workload("StatefulSet", &json!({"replicas": 3}));
        set["metadata"]["uid"] = json!("1");
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "web-0", "namespace": "shop", "ownerReferences": [controlled_by(&set)]},
            "spec": {"nodeName": "a", "containers": [{"name": "a"}]},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": is_ready}]},
        });
        let mut world = World::new(vec![node("a"), set, pod]);
        assert_eq!(world.act().len(), count);
    }

    #[test]
    fn a_smaller_deployment_gives_up_pods_of_crowded_nodes_first() {
        let mut world = World::new(vec![node("a"), node("b"), workload("Deployment", &json!({"replicas": 3}))]);
        let pods = world.act();
        for (pod, node) in pods.iter().zip(["a", "a", "b"]) {
            world.api.bind("shop", pod.name(), &json!({"target": {"name": node}})).unwrap();
        }
        world.act();
        let smaller = json!({"spec": {"replicas": 2}});
        world.api.patch(&apps("deployments"), "shop", "web", PatchKind::Merge, Subresource::Main, smaller).unwrap();
        let mut nodes: Vec<_> = world.act().iter().filter_map(|pod| node_of(pod).map(str::to_owned)).collect();
        nodes.sort();
        assert_eq!(nodes, ["a", "b"]);
    }

    #[test]
    fn a_job_that_states_how_long_it_runs_ends() {
        let mut job = workload("Job", &json!({"completions": 2}));
        job["metadata"]["annotations"] = json!({ DURATION: "10m" });
        let mut world = World::new(vec![node("a"), job]);
        let now = Instant::now();
        for round in 1..=2_u32 {
            world.act_at(now);
            world.bind_all("a");
            world.act_at(now + round * Duration::from_secs(700));
            assert!(world.workloads.has_ends());
            world.act_at(now + (round + 1) * Duration::from_secs(700));
        }
        let pods = State::read(&world.api).pods;
        assert_eq!(pods.iter().filter(|pod| is_finished(pod)).count(), 2, "{pods:?}");
        let job = world.api.get(&Resource::new("batch", "v1", "jobs"), "shop", "web").unwrap();
        assert!(has_condition(&job, "Complete"));
    }

    #[rstest]
    #[case::suspended(json!({"suspend": true}), 0)]
    #[case::smaller(json!({"parallelism": 1}), 1)]
    #[case::larger(json!({"parallelism": 4}), 4)]
    fn a_job_follows_its_parallelism(
        #[values(json!(null), json!(9))] completions: Value,
        #[case] change: Value,
        #[case] count: usize,
    ) {
        let job = workload("Job", &json!({"parallelism": 3, "completions": completions}));
        let mut world = World::new(vec![node("a"), job]);
        assert_eq!(world.act().len(), 3);
        let body = json!({ "spec": change });
        world.api.patch(&jobs(), "shop", "web", PatchKind::Merge, Subresource::Main, body).unwrap();
        assert_eq!(world.act().len(), count);
        let job = world.api.get(&jobs(), "shop", "web").unwrap();
        assert!(!has_condition(&job, "Complete"), "{job}");
    }

    #[test]
    fn a_job_without_completions_ends_with_its_last_pod() {
        let mut job = workload("Job", &json!({"parallelism": 3}));
        job["metadata"]["uid"] = json!("1");
        job["status"] = json!({"succeeded": 1});
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "web-1", "namespace": "shop", "ownerReferences": [controlled_by(&job)]},
            "spec": {"nodeName": "a", "containers": [{"name": "a"}]}, "status": {"phase": "Running"},
        });
        let mut world = World::new(vec![node("a"), job, pod]);
        let pods = world.act();
        assert_eq!(pods.len(), 1, "once one has succeeded there are no new ones");
        delete(&world.api, &pods[0]);
        assert!(world.act().is_empty());
        assert!(has_condition(&world.api.get(&jobs(), "shop", "web").unwrap(), "Complete"));
    }

    #[test]
    fn a_pod_that_runs_already_ends_as_its_job_states() {
        let mut job = workload("Job", &json!({}));
        job["metadata"]["annotations"] = json!({ DURATION: "10m" });
        job["metadata"]["uid"] = json!("1");
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "web-1", "namespace": "shop", "ownerReferences": [controlled_by(&job)]},
            "spec": {"nodeName": "a", "containers": [{"name": "a"}]}, "status": {"phase": "Running"},
        });
        let mut world = World::new(vec![node("a"), job, pod]);
        let now = Instant::now();
        assert!(!is_finished(&world.act_at(now)[0]));
        assert!(world.workloads.has_ends());
        let pods = world.act_at(now + Duration::from_secs(600));
        assert!(pods.len() == 1 && is_finished(&pods[0]), "{pods:?}");
        assert!(!world.workloads.has_ends());
    }

    #[test]
    fn a_pod_that_goes_before_its_end_is_not_waited_for() {
        let mut world = World::new(vec![node("a"), workload("ReplicaSet", &json!({}))]);
        let pod = world.act()[0].clone();
        let annotations = json!({"metadata": {"annotations": {DURATION: "10m"}}});
        let pods = Resource::core("pods");
        world.api.patch(&pods, "shop", pod.name(), PatchKind::Merge, Subresource::Main, annotations).unwrap();
        world.bind_all("a");
        world.act();
        assert!(world.workloads.has_ends());
        delete(&world.api, &pod);
        world.act();
        assert!(!world.workloads.has_ends());
    }

    #[test]
    fn a_rollout_under_way_keeps_its_size_and_the_newest_set_gets_the_difference() {
        let mut deployment = workload("Deployment", &json!({"replicas": 4}));
        deployment["metadata"]["uid"] = json!("1");
        let set = |revision: &str, replicas: i64| {
            let mut set = workload("ReplicaSet", &json!({"replicas": replicas}));
            set["metadata"]["name"] = json!(format!("web-{revision}"));
            set["metadata"]["annotations"] = json!({ REVISION: revision });
            set["metadata"]["ownerReferences"] = json!([controlled_by(&deployment)]);
            set
        };
        let sets = [set("9", 1), set("10", 3), set("8", 0)];
        let mut world = World::new([node("a"), deployment].into_iter().chain(sets).collect());
        let mut sizes = |replicas: i64| {
            let body = json!({"spec": {"replicas": replicas}});
            world.api.patch(&apps("deployments"), "shop", "web", PatchKind::Merge, Subresource::Main, body).unwrap();
            let pods = world.act().len();
            let of = |name| replicas_of(&world.api.get(&apps("replicasets"), "shop", name).unwrap());
            (of("web-8"), of("web-9"), of("web-10"), pods)
        };
        assert_eq!(sizes(4), (0, 1, 3, 4));
        assert_eq!(sizes(6), (0, 1, 5, 6));
        assert_eq!(sizes(2), (0, 1, 1, 2));
        assert_eq!(sizes(0), (0, 0, 0, 0));
    }

    #[test]
    fn pods_get_what_their_runtime_class_adds() {
        let class = json!({
            "kind": "RuntimeClass", "metadata": {"name": "kata"}, "handler": "kata",
            "overhead": {"podFixed": {"memory": "160Mi"}},
            "scheduling": {"nodeSelector": {"kata": "true"}, "tolerations": [{"key": "kata", "operator": "Exists"}]},
        });
        let plain = json!({"kind": "RuntimeClass", "metadata": {"name": "nvidia"}, "handler": "nvidia"});
        let admission = Priorities::of(&[class, plain]);
        let admitted = |runtime: &str| {
            let mut pod = json!({"spec": {"runtimeClassName": runtime, "containers": [{"name": "a"}]}});
            admission.admit(&mut pod);
            admission.admit(&mut pod);
            pod["spec"].clone()
        };
        let kata = admitted("kata");
        assert_eq!(kata["overhead"], json!({"memory": "160Mi"}));
        assert_eq!(kata["nodeSelector"], json!({"kata": "true"}));
        assert_eq!(kata["tolerations"], json!([{"key": "kata", "operator": "Exists"}]));
        assert_eq!(admitted("nvidia")["overhead"], json!({}));
        assert_eq!(admitted("unknown").get("overhead"), None);
    }

    #[test]
    fn pods_are_admitted_with_their_priority_and_with_limits_as_requests() {
        let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"},
            "value": 7, "preemptionPolicy": "Never"});
        let mut pod = json!({"spec": {"priorityClassName": "high", "containers": [
            {"name": "a", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}}}]}});
        Priorities::of(&[class]).admit(&mut pod);
        assert_eq!((&pod["spec"]["priority"], &pod["spec"]["preemptionPolicy"]), (&json!(7), &json!("Never")));
        assert_eq!(pod["spec"]["schedulerName"], "default-scheduler");
        assert_eq!(pod["spec"]["containers"][0]["resources"]["requests"], json!({"cpu": "1", "memory": "1Gi"}));
    }

    #[rstest]
    #[case(json!({"minAvailable": 2}), 3, 2)]
    #[case(json!({"minAvailable": "50%"}), 3, 2)]
    #[case(json!({"maxUnavailable": 1}), 3, 2)]
    #[case(json!({"maxUnavailable": "34%"}), 3, 1)]
    #[case(json!({}), 3, 0)]
    fn a_budget_keeps_so_many_pods(#[case] spec: Value, #[case] expected: i64, #[case] kept: i64) {
        assert_eq!(needed(&spec, expected), kept);
    }

    #[test]
    fn budgets_are_counted_as_pods_come_and_go() {
        let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}});
        let mut world = World::new(vec![node("a"), workload("ReplicaSet", &json!({"replicas": 2})), budget]);
        let resource = Resource::new("policy", "v1", "poddisruptionbudgets");
        let allowed =
            |world: &World| world.api.get(&resource, "shop", "web").unwrap().integer("/status/disruptionsAllowed");
        world.act();
        assert_eq!(allowed(&world), Some(0));
        world.bind_all("a");
        let pods = world.act();
        assert_eq!(allowed(&world), Some(1));
        world.api.evict("shop", pods[0].name(), &DeleteOptions::default()).unwrap();
        world.act();
        assert_eq!(allowed(&world), Some(0));
    }

    #[rstest]
    #[case::others_are_missing(json!({"minAvailable": 2}), 1, false)]
    #[case::enough_others(json!({"minAvailable": 1}), 1, true)]
    #[case::none_is_healthy(json!({"maxUnavailable": 2}), 0, false)]
    #[case::always(json!({"minAvailable": 2, "unhealthyPodEvictionPolicy": "AlwaysAllow"}), 0, true)]
    fn a_pod_that_is_not_ready_may_go(#[case] spec: Value, #[case] ready: usize, #[case] may_go: bool) {
        let mut budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": "web", "namespace": "shop"}, "spec": spec});
        budget["spec"]["selector"] = json!({"matchLabels": {"app": "web"}});
        let pod = |number: usize| {
            let is_ready = if number < ready { "True" } else { "False" };
            json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": format!("web-{number}"), "namespace": "shop", "labels": {"app": "web"}},
                "spec": {"nodeName": "a", "containers": [{"name": "a"}]},
                "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": is_ready}]},
            })
        };
        let mut world = World::new([node("a"), budget].into_iter().chain((0..2).map(pod)).collect());
        world.act();
        assert_eq!(world.api.evict("shop", "web-1", &DeleteOptions::default()).is_ok(), may_go);
    }
}
