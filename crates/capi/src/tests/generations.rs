//! Tests of the generation that an object's controller has observed.

use rstest::rstest;
use serde_json::{Value, json};

use super::*;

/// `status.observedGeneration` is 3 in all cases.
#[rstest]
#[case::v1beta2(json!({"conditions": [scaling_down(Some(4))]}), 4)]
#[case::v1beta1(json!({"conditions": [], "v1beta2": {"conditions": [scaling_down(Some(4))]}}), 4)]
#[case::the_condition_is_older(json!({"conditions": [scaling_down(Some(2))]}), 2)]
#[case::a_condition_of_v1beta1_has_none(json!({"conditions": [scaling_down(None)]}), 3)]
#[case::that_of_v1beta2_goes_first(
    json!({"conditions": [scaling_down(Some(5))], "v1beta2": {"conditions": [scaling_down(Some(4))]}}), 4
)]
#[case::another_condition(json!({"conditions": [{"type": "ScalingUp", "status": "True", "observedGeneration": 4}]}), 3)]
#[case::no_condition(json!({}), 3)]
fn a_machine_set_says_which_generation_its_controller_has_seen(#[case] mut status: Value, #[case] seen: i64) {
    status["observedGeneration"] = json!(3);
    let object = json!({ "status": status });
    assert_eq!(scalable(ScalableKind::MachineSet, &object).seen_generation, seen);
    // The controller that sets this condition on these kinds isn't the one that creates their Machines.
    for kind in [ScalableKind::MachineDeployment, ScalableKind::MachinePool] {
        assert_eq!(scalable(kind, &object).seen_generation, 3, "{kind}");
    }
}

#[test]
fn a_status_that_says_nothing_has_seen_no_generation() {
    assert_eq!(scalable(ScalableKind::MachineSet, &json!({})).seen_generation, 0);
    let object = json!({"status": {"conditions": [scaling_down(Some(4))]}});
    assert_eq!(scalable(ScalableKind::MachineSet, &object).seen_generation, 4);
}

#[rstest]
#[case("v1beta1")]
#[case("v1beta2")]
fn the_controllers_of_real_machine_sets_have_seen_their_generation(#[case] version: &str) {
    let objects = management("steady", version);
    let sets = objects.values().filter_map(|object| match object {
        Read::Scalable(object) if object.kind == ScalableKind::MachineSet => Some(object),
        _ => None,
    });
    let seen: Vec<_> = sets.map(|set| (set.generation, set.seen_generation)).collect();
    assert!(
        !seen.is_empty() && seen.iter().all(|(generation, seen)| *generation > 0 && generation == seen),
        "{seen:?}"
    );
    let file = fixture("steady", &format!("management-{version}.yaml"));
    let set = file.iter().find(|object| object["kind"] == "MachineSet").unwrap();
    let status = &set["status"];
    let conditions = if version == "v1beta1" { &status["v1beta2"]["conditions"] } else { &status["conditions"] };
    let scaling_down = conditions.as_array().unwrap().iter().find(|it| it["type"] == "ScalingDown").unwrap();
    assert_eq!(scaling_down["observedGeneration"], set["metadata"]["generation"]);
}

fn scaling_down(generation: Option<i64>) -> Value {
    let mut condition = condition("ScalingDown", "False", "NotScalingDown");
    if let Some(generation) = generation {
        condition["observedGeneration"] = json!(generation);
    }
    condition
}
