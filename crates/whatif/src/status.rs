//! The status that Cluster Autoscaler writes into a ConfigMap at the end of each loop.

use sandbox::api::{Api, Resource};
use serde::Deserialize;

use crate::object::Object;

/// The annotation that changes with each loop.
const UPDATED: &str = "cluster-autoscaler.kubernetes.io/last-updated";

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
    use sandbox::clock::Clock;
    use serde_json::{Value, json};

    use super::*;

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
