//! Checks if a Cluster's topology sets the size of a MachineDeployment. The topology controller then reverts every size
//! change. This program reports the revert, and must never repeat the size write on its own.

use crate::capi::{Cluster, Keys, ScalableKind, ScalableResource, TOPOLOGY_NAME};

/// Returns true if the topology of its Cluster sets the replicas of a MachineDeployment.
pub fn sets_size(object: &ScalableResource, cluster: &Cluster) -> bool {
    let Some(topology) = cluster.topology.as_deref().filter(|_| object.kind == ScalableKind::MachineDeployment) else {
        return false;
    };
    object.labels.get(TOPOLOGY_NAME).is_some_and(|name| topology.sized.contains(name))
}

/// Returns the size that Cluster API gives an object whose `spec.replicas` is left out; `size` is the one that it has, if
/// it is there already. `None` if Cluster API refuses the object, since a size annotation is no number.
///
/// Without both size annotations the size becomes 1, whatever it was. With both it stays, or becomes the nearest of the
/// two; a new object gets the min size (Cluster API 1.5 to 1.14).
pub fn size_without_replicas<'a>(
    keys: &Keys,
    annotation: impl Fn(&str) -> Option<&'a str>,
    size: Option<i32>,
) -> Option<i32> {
    let stated = |key: &str| annotation(key).map(|text| text.parse::<i32>().ok());
    let (Some(min), Some(max)) = (stated(&keys.min_size), stated(&keys.max_size)) else { return Some(1) };
    let (min, max) = (min?, max?);
    Some(match size {
        None => min,
        Some(size) if size < min => min,
        Some(size) => size.min(max),
    })
}

/// Returns the remedy for a group of this size whose topology sets its replicas.
pub fn remedy(keys: &Keys, object: &ScalableResource, size: i32) -> String {
    const PLACE: &str = "spec.topology.workers.machineDeployments of the Cluster";
    let annotation = |key: &str| object.annotations.get(key).map(arcstr::ArcStr::as_str);
    let has = |key: &str| annotation(key).is_some();
    let becomes = size_without_replicas(keys, annotation, Some(size));
    match (has(&keys.min_size) && has(&keys.max_size), becomes) {
        (_, Some(same)) if same == size => format!("take replicas out of {PLACE} for it"),
        (true, Some(other)) => {
            format!(
                "take replicas out of {PLACE} for it; Cluster API then sizes it to {other}, by its size annotations"
            )
        }
        (true, None) => format!("correct its size annotations, and take replicas out of {PLACE} for it"),
        (false, _) => {
            let missing = if has(&keys.min_size) { &keys.max_size } else { &keys.min_size };
            format!(
                "leave replicas in {PLACE} until {missing} is set too: without both size annotations Cluster API writes 1 \
                 where replicas is missing, and {size} becomes 1. Set both in the topology's metadata for it, in the \
                 change that takes replicas out"
            )
        }
    }
}

#[cfg(test)]
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
    #[case::both(Some("0"), Some("10"), Some(6), Some(6))]
    #[case::below_the_min(Some("3"), Some("10"), Some(2), Some(3))]
    #[case::beyond_the_max(Some("3"), Some("5"), Some(6), Some(5))]
    #[case::a_new_one(Some("3"), Some("5"), None, Some(3))]
    #[case::without_the_min(None, Some("10"), Some(6), Some(1))]
    #[case::without_the_max(Some("3"), None, Some(6), Some(1))]
    #[case::without_both(None, None, Some(6), Some(1))]
    #[case::no_number(Some("0"), Some("three"), Some(6), None)]
    fn replicas_that_are_left_out_become(
        #[case] min: Option<&str>,
        #[case] max: Option<&str>,
        #[case] size: Option<i32>,
        #[case] expected: Option<i32>,
    ) {
        let keys = Keys::default();
        let annotation = |key: &str| if key == keys.min_size { min } else { max };
        assert_eq!(size_without_replicas(&keys, annotation, size), expected);
    }

    #[rstest]
    #[case::both(Some("0"), Some("10"), "take replicas out of spec.topology.")]
    #[case::beyond_the_max(Some("0"), Some("5"), "Cluster API then sizes it to 5")]
    #[case::without_the_min(
        None,
        Some("10"),
        "until cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size is set"
    )]
    #[case::without_the_max(
        Some("1"),
        None,
        "until cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size is set"
    )]
    #[case::no_number(Some("0"), Some("ten"), "correct its size annotations")]
    fn replicas_are_not_advised_away_while_6_would_become_1(
        #[case] min: Option<&str>,
        #[case] max: Option<&str>,
        #[case] expected: &str,
    ) {
        let keys = Keys::default();
        let mut object = deployment("c1-md-0");
        let annotations = [(&keys.min_size, min), (&keys.max_size, max)].into_iter();
        object.annotations =
            annotations.filter_map(|(key, value)| Some((key.as_str().into(), value?.into()))).collect();
        let remedy = remedy(&keys, &object, 6);
        assert!(remedy.contains(expected), "{remedy}");
        let is_refused = remedy.starts_with("leave replicas in ") && remedy.contains("6 becomes 1");
        assert_eq!(is_refused, min.is_none() || max.is_none(), "{remedy}");
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
