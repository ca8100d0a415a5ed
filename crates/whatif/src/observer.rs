//! Notes what happens: sizes, Nodes, Pods, what Cluster Autoscaler says in Events, and the status that it writes into a
//! ConfigMap at the end of each loop.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use sandbox::{
    GroupKey, Object,
    api::{Api, Resource},
};
use serde::Deserialize;
use serde_json::Value;

use crate::{
    groups::{Groups, id_of},
    report::Removed,
    scheduler::is_pending,
    state::{State, is_finished, is_ready, list, node_of},
};

/// The component that Cluster Autoscaler's Events name.
const AUTOSCALER: &str = "cluster-autoscaler";
const NAMED: usize = 3;
/// The priority below which Cluster Autoscaler takes no notice of Pods by default.
const LEAST_PRIORITY: i64 = -10;

/// What was seen last.
#[derive(Debug, Default)]
pub(crate) struct Observer {
    sizes: BTreeMap<GroupKey, i64>,
    /// The largest size of each group.
    most: BTreeMap<GroupKey, i64>,
    nodes: BTreeMap<String, Seen>,
    pods: BTreeMap<String, Life>,
    events: HashMap<String, String>,
    /// The words that were said of each Pod already.
    said: BTreeSet<(String, String)>,
    /// What Cluster Autoscaler said of each Pod last, by its uid, with the revision of the Event.
    verdicts: HashMap<String, (u64, String)>,
    /// What it said of the removal of each Node.
    reasons: HashMap<String, String>,
    removed: Vec<Removed>,
}

#[derive(Clone, Debug, PartialEq)]
struct Seen {
    group: Option<GroupKey>,
    is_ready: bool,
}

#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
enum Life {
    Waits,
    HasNode,
    HasEnded,
}

impl Observer {
    /// Takes the present state as the beginning.
    pub(crate) fn new(state: &State, groups: &Groups) -> Self {
        let mut observer = Self::default();
        observer.note_sizes(groups);
        observer.note_nodes(state, groups);
        observer.note_pods(state);
        observer.removed.clear();
        observer
    }

    /// Returns what has happened since the last call.
    pub(crate) fn look(&mut self, workload: &Api, state: &State, groups: &Groups) -> Vec<String> {
        let mut said = self.note_events(workload);
        said.extend(self.note_sizes(groups));
        said.extend(self.note_nodes(state, groups));
        said.extend(self.note_pods(state));
        said
    }

    /// Returns what Cluster Autoscaler said of a Pod last.
    pub(crate) fn verdict(&self, pod: &Value) -> Option<&str> {
        self.verdicts.get(pod.uid()).map(|(_, text)| text.as_str())
    }

    /// Returns the Nodes that have gone.
    pub(crate) fn removed(&self) -> Vec<Removed> {
        let reason = |removed: &Removed| self.reasons.get(&removed.node).cloned();
        self.removed.iter().map(|removed| Removed { reason: reason(removed), ..removed.clone() }).collect()
    }

    /// Returns the largest size that a group had.
    pub(crate) fn most(&self, group: &GroupKey) -> Option<i64> {
        self.most.get(group).copied()
    }

    fn note_sizes(&mut self, groups: &Groups) -> Vec<String> {
        let mut said = Vec::new();
        for (group, size) in &groups.sizes {
            let most = self.most.entry(group.clone()).or_default();
            *most = (*most).max(*size);
            match self.sizes.insert(group.clone(), *size) {
                Some(before) if before != *size => said.push(format!("{}: size {before} → {size}", id_of(group))),
                Some(_) | None => {}
            }
        }
        said
    }

    fn note_nodes(&mut self, state: &State, groups: &Groups) -> Vec<String> {
        let mut now = BTreeMap::new();
        for node in &state.nodes {
            let known = self.nodes.get(node.name()).and_then(|seen| seen.group.clone());
            let group = groups.of_node.get(node.name()).cloned().or(known);
            now.insert(node.name().to_owned(), Seen { group, is_ready: is_ready(node) });
        }
        let (mut ready, mut gone): (Lines, Lines) = (Lines::default(), Lines::default());
        for (name, seen) in &now {
            if seen.is_ready && self.nodes.get(name).is_none_or(|before| !before.is_ready) {
                ready.add(of(seen), name);
            }
        }
        for (name, seen) in self.nodes.iter().filter(|(name, _)| !now.contains_key(*name)) {
            gone.add(of(seen), name);
            self.removed.push(Removed { node: name.clone(), group: seen.group.as_ref().map(id_of), reason: None });
        }
        self.nodes = now;
        let mut said = ready.lines("is Ready", "are Ready");
        said.extend(gone.lines("is gone", "are gone"));
        said
    }

    fn note_pods(&mut self, state: &State) -> Vec<String> {
        let mut now = BTreeMap::new();
        let mut changed: BTreeMap<Life, Vec<String>> = BTreeMap::new();
        for pod in &state.pods {
            let life = match (is_finished(pod), node_of(pod)) {
                (true, _) => Life::HasEnded,
                (false, Some(_)) => Life::HasNode,
                (false, None) => Life::Waits,
            };
            if self.pods.get(pod.uid()) != Some(&life) {
                changed.entry(life).or_default().push(format!("{}/{}", pod.namespace(), pod.name()));
            }
            now.insert(pod.uid().to_owned(), life);
        }
        let gone = self.pods.keys().filter(|uid| !now.contains_key(*uid)).count();
        self.pods = now;
        let say = |(life, pods): (Life, Vec<String>)| {
            let is_one = pods.len() == 1;
            let what = match life {
                Life::Waits if is_one => "waits for a Node",
                Life::Waits => "wait for a Node",
                Life::HasNode if is_one => "has got a Node",
                Life::HasNode => "have got a Node",
                Life::HasEnded if is_one => "has ended",
                Life::HasEnded => "have ended",
            };
            format!("{}: {what}", counted(pods.len(), "Pod", &pods))
        };
        let mut said: Vec<String> = changed.into_iter().map(say).collect();
        match gone {
            0 => {}
            1 => said.push("1 Pod is gone".to_owned()),
            _ => said.push(format!("{gone} Pods are gone")),
        }
        said
    }

    fn note_events(&mut self, workload: &Api) -> Vec<String> {
        let mut by_message: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
        let mut said = Vec::new();
        for event in list(workload, &Resource::core("events")) {
            let component = event.text("/source/component").or_else(|| event.text("/reportingComponent"));
            let version = event.text("/metadata/resourceVersion").unwrap_or_default();
            if component != Some(AUTOSCALER) || self.events.get(event.uid()).is_some_and(|known| known == version) {
                continue;
            }
            let is_new = self.events.insert(event.uid().to_owned(), version.to_owned()).is_none();
            let (reason, message) =
                (event.text("/reason").unwrap_or_default(), event.text("/message").unwrap_or_default());
            let object = &event["involvedObject"];
            let named = |field: &str| object[field].as_str().unwrap_or_default();
            match named("kind") {
                "Pod" => {
                    let revision = version.parse().unwrap_or_default();
                    let verdict = self.verdicts.entry(named("uid").to_owned()).or_default();
                    if revision >= verdict.0 && reason != "ScaleDown" {
                        *verdict = (revision, sorted(message));
                    }
                    let message = sorted(message);
                    if is_new && self.said.insert((named("uid").to_owned(), message.clone())) {
                        let key = (reason.to_owned(), message);
                        by_message.entry(key).or_default().insert(format!("{}/{}", named("namespace"), named("name")));
                    }
                }
                "ConfigMap" => {
                    // Cluster Autoscaler writes later messages of many into one Event.
                    let message = message.strip_prefix("(combined from similar events): ").unwrap_or(message);
                    if let Some(node) = removed_node(message) {
                        self.reasons.insert(node.to_owned(), message.to_owned());
                    }
                    // The new size is seen itself.
                    if is_new && !message.contains("size set to") {
                        said.push(format!("Cluster Autoscaler: {message}"));
                    }
                }
                _ if is_new && event["type"] == "Warning" => {
                    said.push(format!("Cluster Autoscaler: {} {}: {message}", named("kind"), named("name")));
                }
                _ => {}
            }
        }
        for ((reason, message), pods) in by_message.into_iter().filter(|((reason, _), _)| reason != "ScaleDown") {
            let pods: Vec<String> = pods.into_iter().collect();
            said.push(format!("Cluster Autoscaler: {reason} for {}: {message}", counted(pods.len(), "Pod", &pods)));
        }
        said
    }
}

/// Returns a message with its reasons in one order: Cluster Autoscaler gives them in any.
fn sorted(message: &str) -> String {
    let Some((before, reasons)) = message.split_once("scale-up: ").filter(|(_, reasons)| !reasons.starts_with('['))
    else {
        return message.to_owned();
    };
    let mut reasons: Vec<&str> = reasons.split(", ").collect();
    reasons.sort_unstable();
    format!("{before}scale-up: {}", reasons.join(", "))
}

/// Returns the Node that a message says is being removed.
fn removed_node(message: &str) -> Option<&str> {
    let rest = message.strip_prefix("Scale-down: removing ")?;
    let (_, rest) = rest.split_once("node ")?;
    rest.trim_start_matches('"').split(['"', ',', ' ']).next().filter(|name| !name.is_empty())
}

fn of(seen: &Seen) -> String {
    seen.group.as_ref().map_or_else(|| "no group".to_owned(), id_of)
}

/// Names by their group.
#[derive(Default)]
struct Lines(BTreeMap<String, Vec<String>>);

impl Lines {
    fn add(&mut self, group: String, name: &str) {
        self.0.entry(group).or_default().push(name.to_owned());
    }

    fn lines(self, one: &str, many: &str) -> Vec<String> {
        let line = |(group, names): (String, Vec<String>)| {
            let is = if names.len() == 1 { one } else { many };
            format!("{group}: {} {is}", counted(names.len(), "Node", &names))
        };
        self.0.into_iter().map(line).collect()
    }
}

/// Returns `Node a` or `5 Nodes (a, b, c …)`.
fn counted(count: usize, what: &str, names: &[String]) -> String {
    if let [name] = names {
        return format!("{what} {name}");
    }
    let more = if count > NAMED { " …" } else { "" };
    let names = names.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    format!("{count} {what}s ({names}{more})")
}

/// Returns a number that changes whenever something has moved.
pub(crate) fn digest(state: &State, groups: &Groups) -> u64 {
    let mut hasher = DefaultHasher::new();
    groups.sizes.hash(&mut hasher);
    for (_, machine) in &groups.machines {
        (machine.uid(), machine.deleting(), machine.text("/status/nodeRef/name")).hash(&mut hasher);
    }
    for node in &state.nodes {
        (node.name(), is_ready(node), node["spec"]["unschedulable"] == true).hash(&mut hasher);
        for taint in node.list("/spec/taints") {
            (taint["key"].as_str(), taint["effect"].as_str()).hash(&mut hasher);
        }
    }
    for pod in &state.pods {
        (pod.uid(), node_of(pod), is_finished(pod), pod.deleting()).hash(&mut hasher);
    }
    hasher.finish()
}

/// Returns the Pods that wait for a Node.
pub(crate) fn pending(state: &State) -> Vec<&Arc<Value>> {
    state.pods.iter().filter(|pod| is_pending(pod)).collect()
}

/// Returns true if Cluster Autoscaler may hold that a pending Pod fits a Node: its last word was of a Node for the Pod,
/// or it has said nothing, and cares about such Pods.
pub(crate) fn may_fit(pod: &Value, verdict: Option<&str>) -> bool {
    let is_cared_about = pod.controller().is_none_or(|owner| owner["kind"] != "DaemonSet")
        && pod.number("/spec/priority") >= LEAST_PRIORITY;
    is_cared_about && verdict.is_none_or(|text| text.contains("pod triggered scale-up"))
}

/// Returns the uids of the Pods that are Pending in the manifests, without a Node. Only a dump says so: a manifest in
/// Git has no status.
pub(crate) fn pending_before(objects: &[Value]) -> BTreeSet<String> {
    let was_pending = |pod: &&Value| pod.kind() == "Pod" && is_pending(pod) && pod["status"]["phase"] == "Pending";
    objects.iter().filter(was_pending).map(|pod| pod.uid().to_owned()).collect()
}

/// The annotation that changes with each loop.
pub(crate) const UPDATED: &str = "cluster-autoscaler.kubernetes.io/last-updated";

/// The status after the last loop.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Status {
    /// The number of loops that were seen to end.
    pub(crate) loops: u64,
    updated: String,
    content: Content,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
struct Content {
    autoscaler_status: String,
    cluster_wide: Conditions,
    node_groups: Vec<Conditions>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
struct Conditions {
    scale_up: Condition,
    scale_down: Condition,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
struct Condition {
    status: String,
}

impl Status {
    /// Reads the status again. Returns true if a loop has ended since.
    pub(crate) fn read(&mut self, workload: &Api, (namespace, name): &(String, String)) -> bool {
        let Ok(map) = workload.get(&Resource::core("configmaps"), namespace, name) else { return false };
        let updated = map.annotation(UPDATED).unwrap_or_default();
        if updated == self.updated {
            return false;
        }
        updated.clone_into(&mut self.updated);
        // A status in another form says nothing; the waits are the longer ones then.
        self.content = map.text("/data/status").and_then(|text| serde_yaml::from_str(text).ok()).unwrap_or_default();
        if self.content.autoscaler_status == "Initializing" {
            return false;
        }
        self.loops += 1;
        true
    }

    /// Returns true if a group waits after a failure to grow.
    pub(crate) fn is_backing_off(&self) -> bool {
        self.content.node_groups.iter().any(|group| group.scale_up.status == "Backoff")
    }

    /// Returns true if Nodes may still be removed, or if that isn't known.
    pub(crate) fn has_candidates(&self) -> bool {
        self.content.cluster_wide.scale_down.status != "NoCandidates"
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use sandbox::{
        api::{PatchKind, Subresource},
        clock::Clock,
    };
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case("Scale-down: removing empty node \"a-1\"", Some("a-1"))]
    #[case("Scale-down: removing node a-1, utilization: {0.1}, pods to reschedule: web", Some("a-1"))]
    #[case("Scale-down: node a-1 removed with drain", None)]
    fn the_node_of_a_removal_is_known(#[case] message: &str, #[case] node: Option<&str>) {
        assert_eq!(removed_node(message), node);
    }

    #[test]
    fn reasons_have_one_order() {
        assert_eq!(sorted("pod didn't trigger scale-up: 2 b, 1 a"), "pod didn't trigger scale-up: 1 a, 2 b");
        assert_eq!(sorted("pod triggered scale-up: [{b 0->1}, {a}]"), "pod triggered scale-up: [{b 0->1}, {a}]");
    }

    #[test]
    fn pods_and_what_is_said_of_them_are_counted() {
        let api = Api::new(Clock::real());
        let mut observer = Observer::new(&State::read(&api), &Groups::default());
        let pod = |name: &str| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "n", "uid": name}});
        let event = |pod: &str| {
            json!({
                "apiVersion": "v1", "kind": "Event", "metadata": {"name": pod, "namespace": "n"},
                "source": {"component": "cluster-autoscaler"}, "reason": "NotTriggerScaleUp", "message": "it can't",
                "involvedObject": {"kind": "Pod", "namespace": "n", "name": pod, "uid": pod},
            })
        };
        api.load_values(vec![pod("a"), pod("b"), event("a"), event("b")]).unwrap();
        let state = State::read(&api);
        assert_eq!(
            observer.look(&api, &state, &Groups::default()),
            [
                "Cluster Autoscaler: NotTriggerScaleUp for 2 Pods (n/a, n/b): it can't",
                "2 Pods (n/a, n/b): wait for a Node"
            ]
        );
        assert_eq!(observer.verdict(&pod("a")), Some("it can't"));
        assert!(observer.look(&api, &state, &Groups::default()).is_empty());
        assert_eq!(pending(&state).len(), 2);
    }

    #[test]
    fn each_node_that_goes_has_its_reason_even_if_one_event_has_those_of_many() {
        let api = Api::new(Clock::real());
        let mut observer = Observer::new(&State::read(&api), &Groups::default());
        let event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "n"},
            "source": {"component": "cluster-autoscaler"}, "reason": "ScaleDownEmpty",
            "message": "Scale-down: removing empty node \"a\"",
            "involvedObject": {"kind": "ConfigMap", "namespace": "n", "name": "status"},
        });
        api.load_values(vec![event]).unwrap();
        let _ = observer.look(&api, &State::read(&api), &Groups::default());
        let message = json!({"message": "(combined from similar events): Scale-down: removing empty node \"b\""});
        api.patch(&Resource::core("events"), "n", "e", PatchKind::Merge, Subresource::Main, message).unwrap();
        let _ = observer.look(&api, &State::read(&api), &Groups::default());
        assert_eq!(observer.reasons["a"], "Scale-down: removing empty node \"a\"");
        assert_eq!(observer.reasons["b"], "Scale-down: removing empty node \"b\"");
    }

    #[rstest]
    #[case::silent("ReplicaSet", 0, None, true)]
    #[case::a_node_was_made("ReplicaSet", 0, Some("pod triggered scale-up: [{a 0->1 (max: 3)}]"), true)]
    #[case::no_node_helps("ReplicaSet", 0, Some("pod didn't trigger scale-up: 1 Insufficient cpu"), false)]
    #[case::of_a_daemon_set("DaemonSet", 0, None, false)]
    #[case::expendable("ReplicaSet", -11, None, false)]
    fn cluster_autoscaler_may_hold_that_a_pod_fits(
        #[case] owner: &str,
        #[case] priority: i64,
        #[case] verdict: Option<&str>,
        #[case] expected: bool,
    ) {
        let owners = json!([{"kind": owner, "name": "a", "controller": true}]);
        let pod = json!({"kind": "Pod", "metadata": {"name": "a-1", "ownerReferences": owners},
            "spec": {"priority": priority}});
        assert_eq!(may_fit(&pod, verdict), expected);
    }

    #[test]
    fn pods_are_pending_before_if_a_dump_says_so() {
        let pod = |uid: &str, more: &Value| {
            let mut pod = json!({"kind": "Pod", "metadata": {"name": uid, "uid": uid}, "spec": {}});
            json_patch::merge(&mut pod, more);
            pod
        };
        let pods = [
            pod("dumped", &json!({"status": {"phase": "Pending"}})),
            pod("on a Node", &json!({"spec": {"nodeName": "a"}, "status": {"phase": "Pending"}})),
            pod("new", &json!({})),
        ];
        assert_eq!(pending_before(&pods), BTreeSet::from(["dumped".to_owned()]));
    }

    fn map(updated: &str, status: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "s", "namespace": "n", "annotations": {UPDATED: updated}},
            "data": {"status": status},
        })
    }

    #[test]
    fn loops_are_counted_and_candidates_known() {
        let (api, place) = (Api::new(Clock::real()), ("n".to_owned(), "s".to_owned()));
        let mut status = Status::default();
        assert!(!status.read(&api, &place));
        let mut read = |updated: &str, text: &str| {
            api.load_values(vec![map(updated, text)]).unwrap();
            (status.read(&api, &place), status.has_candidates(), status.is_backing_off(), status.loops)
        };
        assert_eq!(read("1", "autoscalerStatus: Initializing\n"), (false, true, false, 0));
        let running = "autoscalerStatus: Running\nclusterWide: {scaleDown: {status: NoCandidates}}\n\
                       nodeGroups: [{name: a, scaleUp: {status: Backoff, backoffInfo: {errorCode: x}}}]\n";
        assert_eq!(read("2", running), (true, false, true, 1));
        assert_eq!(read("2", running), (false, false, true, 1));
        assert_eq!(read("3", "Cluster-autoscaler status at 2017"), (true, true, false, 2));
    }
}
