//! Checks if a Cluster's topology sets the size of a MachineDeployment. The topology controller then reverts every size
//! change. This program reports the revert, and must never repeat the size write on its own.

use capi::{Cluster, ScalableKind, ScalableResource, TOPOLOGY_NAME};

/// Returns true if the topology of its Cluster sets the replicas of a MachineDeployment.
#[must_use]
pub fn sets_size(object: &ScalableResource, cluster: &Cluster) -> bool {
    let Some(topology) = cluster.topology.as_deref().filter(|_| object.kind == ScalableKind::MachineDeployment) else {
        return false;
    };
    object.labels.get(TOPOLOGY_NAME).is_some_and(|name| topology.sized.contains(name))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::{deployment, meta};

    fn cluster(workers: &Value) -> Cluster {
        let topology = json!({"version": "v1.36.0", "workers": {"machineDeployments": workers}});
        Cluster::decode(meta("team-a", "prod"), &json!({"spec": {"topology": topology}})).unwrap()
    }

    #[rstest]
    #[case::set(json!([{"name": "md-0", "replicas": 3}]), true)]
    #[case::set_to_none(json!([{"name": "md-0", "replicas": 0}]), true)]
    #[case::left_out(json!([{"name": "md-0"}]), false)]
    #[case::null(json!([{"name": "md-0", "replicas": null}]), false)]
    #[case::of_another(json!([{"name": "md-0"}, {"name": "md-1", "replicas": 3}]), false)]
    fn replicas_in_the_topology_set_the_size(#[case] workers: Value, #[case] expected: bool) {
        let mut object = deployment("prod-md-0-x");
        object.labels.insert(TOPOLOGY_NAME.into(), "md-0".into());
        assert_eq!(sets_size(&object, &cluster(&workers)), expected);
    }

    #[test]
    fn one_that_is_in_no_topology_keeps_its_size() {
        let object = deployment("by-hand");
        assert!(!sets_size(&object, &cluster(&json!([{"name": "md-0", "replicas": 3}]))));
    }
}
