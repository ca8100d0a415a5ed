//! Node of the workload cluster: the fields that a kubelet registers and those that Cluster API adds. Its capacity comes
//! from the group's capacity annotations, else from the infrastructure template's `status.capacity`, else it has common
//! values. The allocatable part is a little less.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{
    conditions::{self, ConditionContent},
    keys,
    object::{self, Object},
};

pub(crate) struct NodeOf<'a> {
    pub(crate) name: &'a str,
    pub(crate) provider_id: &'a str,
    pub(crate) cluster: &'a str,
    pub(crate) namespace: &'a str,
    /// The Machine's name; `None` for Nodes of a MachinePool.
    pub(crate) machine: Option<&'a str>,
    /// The kind and name of the Machine's owner, or of the MachinePool.
    pub(crate) owner: (&'a str, &'a str),
    pub(crate) version: &'a str,
    pub(crate) zone: Option<&'a str>,
    /// The labels of its Machine.
    pub(crate) labels: Map<String, Value>,
    pub(crate) taints: Vec<Value>,
    pub(crate) hardware: Hardware,
}

impl NodeOf<'_> {
    /// Returns the Node as it joins; `ready` is true if it is Ready at once.
    pub(crate) fn object(&self, ready: bool, now: Timestamp) -> Value {
        let hardware = &self.hardware;
        let mut labels = hardware.labels.clone();
        labels.insert("kubernetes.io/hostname".to_owned(), json!(self.name));
        for (key, value) in [("arch", &hardware.architecture), ("os", &hardware.operating_system)] {
            // A kubelet writes the old names too.
            for domain in ["kubernetes.io", "beta.kubernetes.io"] {
                labels.entry(format!("{domain}/{key}")).or_insert_with(|| json!(value));
            }
        }
        if let Some(zone) = self.zone {
            labels.insert("topology.kubernetes.io/zone".to_owned(), json!(zone));
        }
        // The Nodes of a MachinePool get no labels from its template.
        if self.machine.is_some() {
            labels.extend(synced_labels(&self.labels));
        }
        let mut spec = json!({ "providerID": self.provider_id });
        let taints: Vec<_> = hardware.taints.iter().chain(&self.taints).cloned().collect();
        if !taints.is_empty() {
            spec["taints"] = json!(taints);
        }
        let mut node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": { "name": self.name, "labels": labels },
            "spec": spec,
            "status": {
                "capacity": hardware.capacity,
                "allocatable": hardware.allocatable(),
                "nodeInfo": {
                    "architecture": hardware.architecture,
                    "operatingSystem": hardware.operating_system,
                    "kubeletVersion": self.version,
                },
            },
        });
        self.claim(&mut node);
        set_ready(&mut node, ready, now);
        for (pressure, reason, message) in [
            ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
            ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ] {
            conditions::set_core(&mut node, &ConditionContent::new(pressure, false, reason).because(message), now);
        }
        node
    }

    /// Returns the Node as a kubelet registers it, without the fields that Cluster API adds. With kubeadm it has a
    /// taint until then.
    pub(crate) fn registered(&self, ready: bool, with_kubeadm: bool, now: Timestamp) -> Value {
        let mut node = self.object(ready, now);
        node.unset("/metadata/annotations");
        for key in synced_labels(&self.labels).keys() {
            node.unset(&object::label(key));
        }
        if with_kubeadm {
            let mut taints = vec![json!({ "key": UNINITIALIZED, "effect": "NoSchedule" })];
            taints.extend(node["spec"]["taints"].as_array().cloned().unwrap_or_default());
            node.set("/spec/taints", json!(taints));
        }
        node
    }

    /// Adds the annotations by which Cluster API links the Node to its Machine and owner, and takes its taint off.
    pub(crate) fn claim(&self, node: &mut Value) {
        let mut taints: Vec<_> = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
        taints.retain(|taint| taint["key"] != UNINITIALIZED);
        set_taints(node, &taints);
        for (key, value) in [
            (keys::NODE_CLUSTER, self.cluster),
            (keys::NODE_NAMESPACE, self.namespace),
            (keys::NODE_OWNER_KIND, self.owner.0),
            (keys::NODE_OWNER_NAME, self.owner.1),
        ] {
            node.set(&object::annotation(key), json!(value));
        }
        if let Some(machine) = self.machine {
            node.set(&object::annotation(keys::NODE_MACHINE), json!(machine));
        }
    }
}

/// The taint of a Node that Cluster API hasn't linked to its Machine yet.
const UNINITIALIZED: &str = "node.cluster.x-k8s.io/uninitialized";

/// The taint of a Node that isn't ready.
const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// Sets the Ready condition of a Node, and the taints that go with it. The API server taints a Node that registers;
/// later the node lifecycle controller adds the second taint, and takes both off in writes of its own, some
/// milliseconds after the kubelet's. Here they are one write.
pub(crate) fn set_ready(node: &mut Value, ready: bool, now: Timestamp) {
    let (reason, message) = if ready {
        ("KubeletReady", "kubelet is posting ready status")
    } else {
        ("KubeletNotReady", "container runtime is down")
    };
    let registers = node["status"]["conditions"].is_null();
    conditions::set_core(node, &ConditionContent::new("Ready", ready, reason).because(message), now);
    let mut taints: Vec<_> = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    taints.retain(|taint| taint["key"] != NOT_READY);
    let effects: &[_] = match (ready, registers) {
        (true, _) => &[],
        (false, true) => &["NoSchedule"],
        (false, false) => &["NoSchedule", "NoExecute"],
    };
    taints.extend(effects.iter().map(|effect| json!({ "key": NOT_READY, "effect": effect })));
    set_taints(node, &taints);
}

/// The resource of a simulated device plugin.
pub(crate) const DEVICE: &str = "example.com/device";

/// Writes what the kubelet of a Ready Node knows of its device plugin. One that has ended leaves its devices in the
/// capacity for a while; one that never came leaves nothing.
pub(crate) fn report(node: &mut Value, devices: u32, now: Timestamp) {
    if devices > 0 || node["status"]["capacity"][DEVICE].is_string() {
        node["status"]["allocatable"][DEVICE] = json!(devices.to_string());
    }
    if devices > 0 {
        node["status"]["capacity"][DEVICE] = json!(devices.to_string());
    }
    set_ready(node, true, now);
}

/// Returns the time of the kubelet's last report.
pub(crate) fn reported_at(node: &Value) -> Option<Timestamp> {
    let conditions = node["status"]["conditions"].as_array()?;
    conditions.iter().find(|one| one["type"] == "Ready")?["lastHeartbeatTime"].as_str()?.parse().ok()
}

fn set_taints(node: &mut Value, taints: &[Value]) {
    if taints.is_empty() {
        node.unset("/spec/taints");
    } else {
        node.set("/spec/taints", json!(taints));
    }
}

pub(crate) fn is_ready(node: &Value) -> bool {
    let all = node["status"]["conditions"].as_array();
    all.is_some_and(|all| all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"))
}

/// Returns the Node with the labels that Cluster API currently copies to it.
pub(crate) fn with_labels(node: &Arc<Value>, labels: &Map<String, Value>) -> Value {
    let mut node = Value::clone(node);
    for (key, value) in synced_labels(labels) {
        node.set(&object::label(&key), value);
    }
    node
}

/// Returns the labels of a Machine that Cluster API copies to its Node (contract, section 4).
fn synced_labels(labels: &Map<String, Value>) -> Map<String, Value> {
    let is_or_is_in = |domain: &str, of: &str| domain == of || domain.ends_with(&format!(".{of}"));
    let synced = |key: &str| {
        key.split_once('/').is_some_and(|(domain, _)| {
            domain == "node-role.kubernetes.io"
                || is_or_is_in(domain, "node-restriction.kubernetes.io")
                || is_or_is_in(domain, "node.cluster.x-k8s.io")
        })
    };
    labels.iter().filter(|(key, _)| synced(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// The capacity, platform, labels and taints of a Node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Hardware {
    pub(crate) capacity: BTreeMap<String, String>,
    pub(crate) architecture: String,
    pub(crate) operating_system: String,
    pub(crate) labels: Map<String, Value>,
    pub(crate) taints: Vec<Value>,
}

impl Hardware {
    /// Returns the hardware of the Nodes of `group`, the object with the capacity annotations, and of its
    /// infrastructure template.
    pub(crate) fn of(group: Option<&Value>, template: Option<&Value>) -> Self {
        let mut capacity = BTreeMap::from(
            [("cpu", "4"), ("memory", "16Gi"), ("ephemeral-storage", "100Gi"), ("pods", "110")]
                .map(|(resource, quantity)| (resource.to_owned(), quantity.to_owned())),
        );
        for (resource, quantity) in template.map(|template| template.map("/status/capacity")).into_iter().flatten() {
            capacity.insert(resource, text(&quantity));
        }
        let annotation = |name: &str| group?.annotation(&format!("{}{name}", keys::CAPACITY));
        for (name, resource) in
            [("cpu", "cpu"), ("memory", "memory"), ("ephemeral-disk", "ephemeral-storage"), ("maxPods", "pods")]
        {
            if let Some(quantity) = annotation(name) {
                capacity.insert(resource.to_owned(), quantity.to_owned());
            }
        }
        if let (Some(kind), Some(count)) = (annotation("gpu-type"), annotation("gpu-count")) {
            capacity.insert(kind.to_owned(), count.to_owned());
        }
        let info = |field: &str| template?.text(&format!("/status/nodeInfo/{field}")).map(str::to_owned);
        let pairs = annotation("labels").unwrap_or_default().split(',').filter_map(|pair| pair.trim().split_once('='));
        let taints = annotation("taints").unwrap_or_default().split(',').filter_map(taint);
        Self {
            capacity,
            architecture: info("architecture").unwrap_or_else(|| "amd64".to_owned()),
            operating_system: info("operatingSystem").unwrap_or_else(|| "linux".to_owned()),
            labels: pairs.map(|(key, value)| (key.to_owned(), json!(value))).collect(),
            taints: taints.collect(),
        }
    }

    /// Returns the same hardware with so many mebibytes of memory less.
    pub(crate) fn without_memory(mut self, mebibytes: u32) -> Self {
        if mebibytes > 0
            && let Some(memory) = self.capacity.get_mut("memory")
            && let Some(milli) = milli(memory)
        {
            *memory = format!("{}Ki", milli / 1000 / 1024 - i128::from(mebibytes) * 1024);
        }
        self
    }

    pub(crate) fn allocatable(&self) -> BTreeMap<String, String> {
        let less = |(resource, quantity): (&String, &String)| {
            let left = match resource.as_str() {
                "cpu" => milli(quantity).map(|milli| format!("{}m", milli * 95 / 100)),
                "memory" | "ephemeral-storage" => {
                    milli(quantity).map(|milli| format!("{}Ki", milli / 1000 * 90 / 100 / 1024))
                }
                _ => None,
            };
            (resource.clone(), left.unwrap_or_else(|| quantity.clone()))
        };
        self.capacity.iter().map(less).collect()
    }
}

fn text(quantity: &Value) -> String {
    quantity.as_str().map_or_else(|| quantity.to_string(), str::to_owned)
}

/// Parses a taint: `key=value:Effect` or `key:Effect`.
fn taint(text: &str) -> Option<Value> {
    let (pair, effect) = text.trim().rsplit_once(':')?;
    Some(match pair.split_once('=') {
        Some((key, value)) => json!({ "key": key, "value": value, "effect": effect }),
        None => json!({ "key": pair, "effect": effect }),
    })
}

/// Parses a quantity in one of the common forms (digits, a fraction, a suffix), and returns thousandths.
fn milli(quantity: &str) -> Option<i128> {
    let end = quantity.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(quantity.len());
    let (number, suffix) = quantity.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let unit: i128 = match suffix {
        "m" => 1,
        "" => 1000,
        "k" => 1_000_000,
        "M" => 1_000_000_000,
        "G" => 1_000_000_000_000,
        "T" => 1_000_000_000_000_000,
        "Ki" => 1000 << 10,
        "Mi" => 1000 << 20,
        "Gi" => 1000 << 30,
        "Ti" => 1000 << 40,
        _ => return None,
    };
    let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    Some(digits.checked_mul(unit)? / scale)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rstest::rstest;

    use super::*;
    use crate::clock::after;
    use crate::recorded::{recorded, shape};

    fn worker() -> NodeOf<'static> {
        NodeOf {
            name: "worker",
            provider_id: "sandbox:///team-a/worker",
            cluster: "prod",
            namespace: "team-a",
            machine: Some("worker"),
            owner: ("MachineSet", "workers"),
            version: "v1.36.3",
            zone: None,
            labels: Map::new(),
            taints: Vec::new(),
            hardware: Hardware::of(None, None),
        }
    }

    #[test]
    fn a_simulated_kubelet_writes_its_node_as_a_real_one_did() {
        let (of, now) = (worker(), Timestamp::UNIX_EPOCH);
        let mut node = of.registered(false, false, now);
        assert_eq!(shape(&node), shape(&recorded("registered")));
        set_ready(&mut node, true, now);
        assert_eq!(shape(&node), shape(&recorded("ready")));
        set_ready(&mut node, false, now);
        assert_eq!(shape(&node), shape(&recorded("unready")));
        set_ready(&mut node, true, now);
        assert_eq!(shape(&node), shape(&recorded("ready")));
        assert!(node["spec"].get("taints").is_none(), "{node}");
    }

    #[test]
    fn a_device_plugin_comes_and_goes_on_a_node_that_stays_ready() {
        let (of, now) = (worker(), Timestamp::UNIX_EPOCH);
        let mut node = of.object(true, now);
        for (devices, capacity, minute) in [(2, "2", 1), (0, "2", 12), (3, "3", 13)] {
            report(&mut node, devices, after(now, Duration::from_secs(60 * minute)));
            let amounts = [&node["status"]["allocatable"][DEVICE], &node["status"]["capacity"][DEVICE]];
            assert_eq!(amounts, [&json!(devices.to_string()), &json!(capacity)]);
            let ready =
                node["status"]["conditions"].as_array().unwrap().iter().find(|it| it["type"] == "Ready").unwrap();
            assert_eq!(
                (ready["status"].as_str(), ready["lastTransitionTime"].as_str()),
                (Some("True"), Some("1970-01-01T00:00:00Z"))
            );
            assert_eq!(reported_at(&node), Some(after(now, Duration::from_secs(60 * minute))));
        }
    }

    #[test]
    fn a_simulated_node_joins_its_machine_as_a_real_one_did() {
        let (of, now) = (worker(), Timestamp::UNIX_EPOCH);
        let mut node = of.registered(false, true, now);
        assert_eq!(shape(&node), shape(&recorded("joining")));
        of.claim(&mut node);
        assert_eq!(shape(&node), shape(&recorded("claimed")));
        set_ready(&mut node, true, now);
        assert_eq!(shape(&node), shape(&recorded("joined")));
        assert_eq!(shape(&of.object(true, now)), shape(&recorded("joined")));
        assert!(node["spec"].get("taints").is_none(), "{node}");
    }

    #[test]
    fn only_labels_of_the_synced_domains_reach_a_node() {
        let labels = json!({
            "node-role.kubernetes.io/worker": "",
            "a.node-role.kubernetes.io/worker": "",
            "example.node-restriction.kubernetes.io/a": "",
            "node.cluster.x-k8s.io/pool": "workers",
            "my.node.cluster.x-k8s.io/pool": "workers",
            "notnode.cluster.x-k8s.io/pool": "workers",
            "plain": "",
        });
        let synced = synced_labels(labels.as_object().unwrap());
        let keys: Vec<_> = synced.keys().map(String::as_str).collect();
        assert_eq!(
            keys,
            [
                "example.node-restriction.kubernetes.io/a",
                "my.node.cluster.x-k8s.io/pool",
                "node-role.kubernetes.io/worker",
                "node.cluster.x-k8s.io/pool"
            ]
        );
    }

    fn group() -> Value {
        let annotation = |name: &str| format!("{}{name}", keys::CAPACITY);
        json!({ "metadata": { "annotations": {
            annotation("cpu"): "16",
            annotation("gpu-type"): "nvidia.com/gpu",
            annotation("gpu-count"): "2",
            annotation("labels"): "cluster-api/accelerator=t4,a=b",
            annotation("taints"): "dedicated=gpu:NoSchedule,slow:NoExecute",
        } } })
    }

    #[test]
    fn annotations_go_before_the_template_and_the_template_before_the_usual() {
        let template = json!({ "status": {
            "capacity": { "cpu": 8, "memory": "32Gi" },
            "nodeInfo": { "architecture": "arm64", "operatingSystem": "" },
        } });
        let hardware = Hardware::of(Some(&group()), Some(&template));
        assert_eq!(hardware.capacity["cpu"], "16");
        assert_eq!(hardware.capacity["memory"], "32Gi");
        assert_eq!(hardware.capacity["pods"], "110");
        assert_eq!(hardware.capacity["nvidia.com/gpu"], "2");
        assert_eq!((hardware.architecture.as_str(), hardware.operating_system.as_str()), ("arm64", "linux"));
        assert_eq!(hardware.labels["a"], "b");
        assert_eq!(hardware.taints[1], json!({ "key": "slow", "effect": "NoExecute" }));
        assert_eq!(Hardware::of(None, Some(&template)).capacity["cpu"], "8");
    }

    #[rstest]
    #[case("cpu", "4", "3800m")]
    #[case("cpu", "500m", "475m")]
    #[case("cpu", "1.5", "1425m")]
    #[case("memory", "10Gi", "9437184Ki")]
    #[case("memory", "1e3", "1e3")]
    #[case("pods", "110", "110")]
    fn pods_get_a_little_less_than_there_is(#[case] resource: &str, #[case] capacity: &str, #[case] expected: &str) {
        let capacity = BTreeMap::from([(resource.to_owned(), capacity.to_owned())]);
        assert_eq!(Hardware { capacity, ..Hardware::default() }.allocatable()[resource], expected);
    }
}
