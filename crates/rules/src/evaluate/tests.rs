//! Tests of the conditions for a group, and of the order in which they are checked.

use arcstr::ArcStr;

use crate::capi::{InfrastructureRef, ScalableKind};
use rstest::rstest;

use super::*;
use crate::{
    ScopeSpec,
    testing::{assert_names, cluster, deployment, infrastructure, machine_set, scalable},
};

fn rules() -> Rules {
    Rules::new(Scope::All)
}

fn annotate(object: &mut ScalableResource, key: &str, value: &str) {
    object.annotations.insert(ArcStr::from(key), ArcStr::from(value));
}

fn bounded(mut object: ScalableResource, min: &str, max: &str) -> ScalableResource {
    let keys = Keys::default();
    annotate(&mut object, &keys.min_size, min);
    annotate(&mut object, &keys.max_size, max);
    object
}

/// Returns a MachineDeployment of three replicas that is a group.
fn group() -> ScalableResource {
    bounded(deployment("workers"), "1", "10")
}

fn of(object: &ScalableResource) -> Result<Box<Definition>, Excluded> {
    evaluate(object, Some(&cluster()), InfrastructureState::None, RealNodes::default(), &rules())
}

fn left_out(result: &Result<Box<Definition>, Excluded>) -> Option<Exclusion> {
    result.as_ref().err().map(|excluded| excluded.reason)
}

fn definition(result: Result<Box<Definition>, Excluded>) -> Definition {
    match result {
        Ok(definition) => *definition,
        Err(Excluded { reason, problems }) => panic!("{reason}: {problems:?}"),
    }
}

#[rstest]
#[case(ScalableKind::MachineDeployment, "MachineDeployment/team-a/workers")]
#[case(ScalableKind::MachineSet, "MachineSet/team-a/workers")]
#[case(ScalableKind::MachinePool, "MachinePool/team-a/workers")]
fn each_kind_is_a_group(#[case] kind: ScalableKind, #[case] id: &str) {
    let definition = definition(of(&bounded(scalable(kind, "workers"), "1", "10")));
    assert_eq!(definition.id.to_string(), id);
    assert_eq!(definition.bounds, Bounds { min: 1, max: 10 });
    assert_eq!(definition.template, None);
    assert!(definition.options.is_empty());
    assert_eq!(definition.problems, []);
}

#[test]
fn invalid_bounds_say_why() {
    let Err(Excluded { problems, .. }) = of(&bounded(deployment("workers"), "3", "2")) else { panic!("a group") };
    assert_eq!(problems[0].kind, ProblemKind::Bounds);
}

/// Karpenter's provider for Cluster API sizes MachineDeployments with the label, and takes their max size as its limit.
#[rstest]
#[case::as_its_documents_say(ScalableKind::MachineDeployment, "", Some(Exclusion::KarpenterMember))]
#[case::with_a_value(ScalableKind::MachineDeployment, "true", Some(Exclusion::KarpenterMember))]
#[case::of_a_kind_that_it_does_not_size(ScalableKind::MachineSet, "", None)]
#[case::of_another_that_it_does_not_size(ScalableKind::MachinePool, "", None)]
fn a_member_of_karpenter_is_none(#[case] kind: ScalableKind, #[case] value: &str, #[case] expected: Option<Exclusion>) {
    let mut object = scalable(kind, "spot");
    annotate(&mut object, &Keys::default().max_size, "10");
    object.labels.insert(KARPENTER_MEMBER.into(), value.into());
    assert_eq!(left_out(&of(&object)), expected);
}

/// The provider writes the size of another autoscaler into spec.replicas.
#[rstest]
#[case::of_an_external_autoscaler(
    ScalableKind::MachinePool,
    "external-autoscaler",
    Some(Exclusion::ReplicasManagedElsewhere)
)]
#[case::of_a_provider(ScalableKind::MachinePool, "aks", Some(Exclusion::ReplicasManagedElsewhere))]
#[case::empty(ScalableKind::MachinePool, "", Some(Exclusion::ReplicasManagedElsewhere))]
#[case::taken_back(ScalableKind::MachinePool, "false", None)]
#[case::of_a_kind_that_it_is_not_for(ScalableKind::MachineDeployment, "external-autoscaler", None)]
fn a_machine_pool_whose_provider_writes_its_size_is_none(
    #[case] kind: ScalableKind,
    #[case] value: &str,
    #[case] expected: Option<Exclusion>,
) {
    let mut object = bounded(scalable(kind, "pool"), "0", "5");
    annotate(&mut object, REPLICAS_MANAGED_BY, value);
    assert_eq!(left_out(&of(&object)), expected);
}

/// A typing error must be shown whatever becomes of the object: it is often the very reason that it isn't a group.
#[rstest]
#[case::beside_both(&[("min-size", "1"), ("max-size", "3"), ("min-sise", "2")], None)]
#[case::in_the_min(&[("min-sise", "1"), ("max-size", "3")], None)]
#[case::in_the_max(&[("max-sise", "3")], Some(Exclusion::NotAutoscaled))]
#[case::in_the_max_beside_a_min(&[("min-size", "1"), ("max-sise", "3")], Some(Exclusion::InvalidBounds))]
fn a_typing_error_in_a_size_annotation_is_a_problem(
    #[case] sizes: &[(&str, &str)],
    #[case] excluded: Option<Exclusion>,
) {
    let mut object = deployment("workers");
    for (name, value) in sizes {
        annotate(&mut object, &format!("{}{name}", Keys::default().size_prefix), value);
    }
    let result = of(&object);
    assert_eq!(left_out(&result), excluded);
    let problems = result.map_or_else(|excluded| excluded.problems, |definition| definition.problems);
    let is_typo = |problem: &&Problem| problem.message.contains("-sise is ") && problem.kind == ProblemKind::Bounds;
    assert_eq!(problems.iter().filter(is_typo).count(), 1, "{problems:?}");
}

#[test]
fn an_unknown_annotation_with_the_programs_own_prefix_is_a_problem() {
    let mut object = group();
    annotate(&mut object, "capi-autoscaler-provider.io/capacity-error-grase", "1m");
    let problems = definition(of(&object)).problems;
    assert_names(
        &problems,
        ProblemKind::Options,
        &["capacity-error-grase", "known are scale-down-while-rolling-out, capacity-error-grace", "ignored"],
    );
}

#[rstest]
#[case::not(false, false, None)]
#[case::by_its_annotation(true, false, Some(Exclusion::Paused))]
#[case::by_its_clusters_spec(false, true, Some(Exclusion::Paused))]
fn paused_is_as_cluster_api_pauses(#[case] annotation: bool, #[case] spec: bool, #[case] expected: Option<Exclusion>) {
    let mut object = group();
    if annotation {
        annotate(&mut object, PAUSED, "");
    }
    let cluster = Cluster { paused: spec, ..cluster() };
    let result = evaluate(&object, Some(&cluster), InfrastructureState::None, RealNodes::default(), &rules());
    assert_eq!(left_out(&result), expected);
}

#[test]
fn a_machine_set_that_another_api_has_the_authority_over_is_none() {
    let mut set = bounded(machine_set("workers"), "1", "10");
    assert_eq!(left_out(&of(&set)), None);
    set.handed_over = true;
    assert_eq!(left_out(&of(&set)), Some(Exclusion::HandedOver));
}

#[rstest]
#[case::replicas_without_a_template(Some(1), &[], None)]
#[case::no_replicas_without_a_template(Some(0), &[], Some(Exclusion::NoScaleFromZero))]
#[case::absent_replicas_count_as_none(None, &[], Some(Exclusion::NoScaleFromZero))]
#[case::no_replicas_with_cpu_alone(Some(0), &[("cpu", "4")], Some(Exclusion::NoScaleFromZero))]
#[case::no_replicas_with_cpu_and_memory(Some(0), &[("cpu", "4"), ("memory", "1Gi")], None)]
fn without_replicas_it_must_be_able_to_scale_from_zero(
    #[case] replicas: Option<i32>,
    #[case] capacity: &[(&str, &str)],
    #[case] expected: Option<Exclusion>,
) {
    let object = ScalableResource { replicas, ..group() };
    let infrastructure = infrastructure(capacity);
    let result = evaluate(&object, None, InfrastructureState::Known(&infrastructure), RealNodes::default(), &rules());
    assert_eq!(left_out(&result), expected);
}

/// Cluster Autoscaler removes its last Node, and the group is gone.
#[rstest]
#[case::min_0_and_no_capacity("0", &[], true)]
#[case::min_0_and_cpu_alone("0", &[("cpu", "4")], true)]
#[case::min_0_and_a_capacity("0", &[("cpu", "4"), ("memory", "1Gi")], false)]
#[case::min_1_and_no_capacity("1", &[], false)]
fn a_group_that_would_be_lost_at_0_has_a_note(
    #[case] min: &str,
    #[case] capacity: &[(&str, &str)],
    #[case] expected: bool,
) {
    let (object, infrastructure) = (bounded(deployment("workers"), min, "3"), infrastructure(capacity));
    let state = InfrastructureState::Known(&infrastructure);
    let definition = definition(evaluate(&object, None, state, RealNodes::default(), &rules()));
    let is_noted = definition.notes.iter().any(|note| note.contains("nothing scales it up again"));
    assert_eq!((is_noted, definition.problems.len()), (expected, 0));
}

#[test]
fn a_template_that_was_not_read_yet_is_no_loss_and_no_problem() {
    let object = bounded(deployment("workers"), "0", "3");
    let result = evaluate(&object, None, InfrastructureState::Unknown, RealNodes::default(), &rules());
    let definition = definition(result);
    assert_eq!((definition.notes, definition.problems), (Vec::new(), Vec::new()));
}

#[test]
fn annotations_are_enough_to_scale_from_zero() {
    let mut object = ScalableResource { replicas: Some(0), ..group() };
    annotate(&mut object, "capacity.cluster-autoscaler.kubernetes.io/cpu", "4");
    annotate(&mut object, "capacity.cluster-autoscaler.kubernetes.io/memory", "16Gi");
    for state in [InfrastructureState::None, InfrastructureState::Unknown, InfrastructureState::Unreadable("forbidden")]
    {
        let definition = definition(evaluate(&object, None, state, RealNodes::default(), &rules()));
        assert!(definition.template.is_some(), "{state:?}");
    }
}

#[test]
fn an_unreadable_template_is_a_problem_and_the_group_is_served() {
    let mut object = group();
    object.infrastructure =
        Some(InfrastructureRef { group: "infra.example".into(), kind: "VMTemplate".into(), name: "big".into() });
    let state = InfrastructureState::Unreadable("403 Forbidden");
    let definition = definition(evaluate(&object, None, state, RealNodes::default(), &rules()));
    let part = "VMTemplate.infra.example team-a/big can't be read: 403 Forbidden";
    assert_names(&definition.problems, ProblemKind::Template, &[part]);
}

#[test]
fn bad_annotations_leave_the_group_standing() {
    let mut object = group();
    annotate(&mut object, "capacity.cluster-autoscaler.kubernetes.io/cpu", "four");
    annotate(&mut object, "cluster.x-k8s.io/autoscaling-options-scaledownunneededtime", "10");
    annotate(&mut object, "cluster.x-k8s.io/autoscaling-options-scaledownunreadytime", "10m");
    let definition = definition(of(&object));
    let kinds: Vec<_> = definition.problems.iter().map(|problem| problem.kind).collect();
    assert_eq!(kinds, [ProblemKind::Capacity, ProblemKind::Options]);
    assert!(definition.options.scale_down_unready_time.is_some());
}

#[test]
fn a_group_that_cannot_scale_from_zero_reports_its_invalid_capacity_annotation() {
    let mut object = ScalableResource { replicas: Some(0), ..group() };
    annotate(&mut object, "capacity.cluster-autoscaler.kubernetes.io/cpu", "four");
    let Err(Excluded { reason: Exclusion::NoScaleFromZero, problems }) = of(&object) else { panic!("a group") };
    assert_eq!(problems.len(), 1);
}

/// The earliest reason is reported: each object here has all the later ones too.
#[test]
fn reasons_are_asked_in_order() {
    let mut rules = rules();
    rules.scope = Scope::Specs(vec![ScopeSpec::cluster("team-b", "prod")]);
    let mut object = bounded(deployment("workers-1"), "x", "x");
    object.labels.insert(KARPENTER_MEMBER.into(), "".into());
    object.deployment = Some("workers".into());
    object.replicas = Some(0);
    annotate(&mut object, PAUSED, "");
    let reason = |object: &ScalableResource, rules: &Rules| {
        left_out(&evaluate(object, None, InfrastructureState::None, RealNodes::default(), rules))
    };
    assert_eq!(reason(&object, &rules), Some(Exclusion::OutOfScope));
    rules.scope = Scope::All;
    assert_eq!(reason(&object, &rules), Some(Exclusion::OwnedByMachineDeployment));
    object.deployment = None;
    assert_eq!(reason(&bounded(object.clone(), "0", "0"), &rules), Some(Exclusion::NotAutoscaled));
    assert_eq!(reason(&object, &rules), Some(Exclusion::KarpenterMember));
    object.labels.clear();
    assert_eq!(reason(&object, &rules), Some(Exclusion::InvalidBounds));
    object = bounded(object, "0", "3");
    assert_eq!(reason(&object, &rules), Some(Exclusion::Paused));
    object.annotations.remove(PAUSED);
    assert_eq!(reason(&object, &rules), Some(Exclusion::NoScaleFromZero));
    object.replicas = Some(1);
    assert_eq!(reason(&object, &rules), None);
}

#[test]
fn of_many_problems_the_first_are_reported_and_the_others_counted() {
    let mut object = group();
    annotate(&mut object, "capacity.cluster-autoscaler.kubernetes.io/cpu", "4");
    annotate(&mut object, "capacity.cluster-autoscaler.kubernetes.io/memory", "16Gi");
    annotate(&mut object, "capacity.cluster-autoscaler.kubernetes.io/labels", &"!=x,".repeat(50_000));
    let problems = definition(of(&object)).problems;
    assert_eq!(problems.len(), 21);
    assert!(problems[0].message.contains("this one and all after it are ignored"), "{}", problems[0]);
    assert!(problems[20].message.contains("81 more"), "{}", problems[20]);
}

/// The text that takes the place of one that is too long to be read.
const UNREAD: &str = "(16385 bytes; no more than 16384 are read)";

#[test]
fn an_annotation_of_any_length_is_a_short_problem() {
    assert!(crate::capi::is_unread(UNREAD));
    let options = Overrides::NAMES.join(" ");
    let keys = [
        ("cluster.x-k8s.io/cluster-api-autoscaler-node-group-", "min-size max-size"),
        ("cluster.x-k8s.io/autoscaling-options-", options.as_str()),
        (
            "capacity.cluster-autoscaler.kubernetes.io/",
            "cpu memory ephemeral-disk maxPods gpu-type gpu-count labels taints dra-driver csi-driver",
        ),
        (
            "capacity.capi-autoscaler-provider.io/",
            "price-per-hour resources overhead zone-from-failure-domain remember",
        ),
        ("capi-autoscaler-provider.io/", "capacity-error-grace scale-down-while-rolling-out"),
    ];
    let problems = |key: &str, value: &str| {
        let mut object = group();
        // The zone annotation is read only together with a failure domain.
        object.failure_domain = Some("a".into());
        annotate(&mut object, "capacity.cluster-autoscaler.kubernetes.io/cpu", "4");
        annotate(&mut object, "capacity.cluster-autoscaler.kubernetes.io/memory", "16Gi");
        annotate(&mut object, key, value);
        of(&object).map_or_else(|excluded| excluded.problems, |definition| definition.problems)
    };
    for (prefix, names) in keys {
        for key in names.split(' ').map(|name| format!("{prefix}{name}")) {
            let at_bound = problems(&key, &"x".repeat(crate::capi::LONGEST_VALUE));
            assert!(at_bound.iter().any(|problem| problem.message.contains("(cut)")), "{key}: {at_bound:?}");
            let beyond = problems(&key, UNREAD);
            let names = |problem: &Problem| problem.message.contains(UNREAD) && problem.message.contains(&key);
            assert!(beyond.iter().any(names), "{key}: {beyond:?}");
        }
    }
}
