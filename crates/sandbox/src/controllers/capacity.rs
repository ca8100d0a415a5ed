//! The capacity of a group's Nodes: from the capacity annotations, else from the infrastructure template's
//! `status.capacity`, else common values. The allocatable part is a little less.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{keys, object::Object};

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

    /// Returns the allocatable capacity.
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
    use rstest::rstest;

    use super::*;

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
