//! Property test: any order of events, with repeats, deletes and relists, gives the same index as a rebuild from
//! scratch.

use std::collections::{BTreeMap, HashMap};

use proptest::{collection::vec, prelude::*, sample::Index as Pick};
use rules::capi::{ObjectKey, PRICE_PER_HOUR, ScalableKind};
use rules::{FromZero, GroupId, InstanceCounts, InstanceState};
use serde_json::{Value, json};

use super::objects::*;
use crate::{Change, Detail, Index, KindState, NodeQuery, Sizes};

/// An entity of a small world: absent, undecodable, or one of its variants.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Entity {
    Cluster(u8),
    Deployment(u8),
    Set(u8),
    Pool,
    Machine(u8),
    Node(u8),
    Template(u8),
    Kind,
}

fn entity() -> impl Strategy<Value = Entity> {
    prop_oneof![
        1 => (0..2_u8).prop_map(Entity::Cluster),
        3 => (0..2_u8).prop_map(Entity::Deployment),
        3 => (0..3_u8).prop_map(Entity::Set),
        1 => Just(Entity::Pool),
        6 => (0..5_u8).prop_map(Entity::Machine),
        4 => (0..4_u8).prop_map(Entity::Node),
        2 => (0..2_u8).prop_map(Entity::Template),
        1 => Just(Entity::Kind),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    /// Sets an entity to this variant.
    Set(Entity, u16),
    Delete(Entity),
    /// The caller's loop pins the membership.
    Refresh,
    /// Repeats all existing objects, beginning with any of them.
    Relist(Pick),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (entity(), any::<u16>()).prop_map(|(entity, variant)| Step::Set(entity, variant)),
        3 => entity().prop_map(Step::Delete),
        1 => Just(Step::Refresh),
        1 => any::<Pick>().prop_map(Step::Relist),
    ]
}

/// Returns one of `choices`, consuming bits of the variant.
fn choose<'a, T: ?Sized>(variant: &mut u16, choices: &[&'a T]) -> &'a T {
    let length = u16::try_from(choices.len()).unwrap();
    let choice = choices[usize::from(*variant % length)];
    *variant /= length;
    choice
}

fn bounds(variant: &mut u16) -> (&'static str, &'static str) {
    *choose(variant, &[&("0", "5"), &("1", "3"), &("x", "3"), &("0", "0")])
}

/// Returns a failure domain, which may be the zone of Nodes.
fn failure_domain(variant: &mut u16) -> Value {
    match choose(variant, &["", "zone-a", "a"]) {
        "" => json!({}),
        domain => json!({"spec": {"template": {"spec": {"failureDomain": domain}}}}),
    }
}

/// Returns the condition of the infrastructure of a Machine or MachinePool. Without a time of its own it begins when it
/// is observed.
fn infrastructure_ready(variant: &mut u16) -> Value {
    match choose(variant, &["", "", "NoValidHost", "QuotaExceeded", "Deleted"]) {
        "" => json!({}),
        reason => {
            json!({"status": {"conditions": [{"type": "InfrastructureReady", "status": "False", "reason": reason}]}})
        }
    }
}

fn set(entity: Entity, mut variant: u16) -> Change {
    let v = &mut variant;
    match entity {
        Entity::Cluster(n) => {
            let name = ["stage", "other"][usize::from(n)];
            match choose(v, &["paused", "", "v1.36.0", "held back"]) {
                "v1.36.0" => cluster_of_version(name, "v1.36.0", &[]),
                "held back" => cluster_of_version(name, "v1.36.0", &["md-0"]),
                paused => cluster(name, paused == "paused"),
            }
        }
        Entity::Deployment(n) => {
            let bounds = bounds(v);
            let replicas = i32::from(*v % 3);
            *v /= 3;
            let mut more = choose(
                v,
                &[&json!({}), &using_template("t0"), &using_template("t1"), &capacity_annotations("1", "1Gi")],
            )
            .clone();
            if let price @ ("0" | "1" | "2" | "x") = choose(v, &["0", "1", "2", "x", "", ""]) {
                merge(&mut more, &json!({"metadata": {"annotations": {PRICE_PER_HOUR: price}}}));
            }
            merge(&mut more, &json!({"spec": {"clusterName": choose(v, &["stage", "other"])}}));
            if choose(v, &["", "topology"]) == "topology" {
                let labels = json!({"topology.cluster.x-k8s.io/deployment-name": "md-0"});
                merge(&mut more, &json!({"metadata": {"labels": labels}}));
                merge(&mut more, &json!({"spec": {"template": {"spec": {"version": "v1.35.0"}}}}));
            }
            merge(&mut more, &failure_domain(v));
            deployment(&format!("md{n}"), replicas, bounds, &more)
        }
        Entity::Set(n) => {
            let name = format!("ms{n}");
            match choose(v, &["md0", "md1", ""]) {
                "" => scalable(ScalableKind::MachineSet, &name, i32::from(*v % 3), bounds(v), &using_template("t0")),
                owner => {
                    let mut more = choose(v, &[&json!({}), &using_template("t0")]).clone();
                    merge(&mut more, &of_revision(*v % 2 + 1, *v / 2 % 2));
                    *v /= 4;
                    merge(&mut more, &failure_domain(v));
                    set_of_with(owner, &name, &more)
                }
            }
        }
        Entity::Pool => {
            let ids =
                choose(v, &[&json!([]), &json!(["cloud:///zone/n0"]), &json!(["cloud:///zone/n1", "other:///n2"])])
                    .clone();
            let nodes = choose(v, &[&json!([]), &json!([{"name": "n1"}, {"name": "n0"}])]).clone();
            let mut more = json!({"spec": {"providerIDList": ids}, "status": {"nodeRefs": nodes}});
            // It has a template, so that the Node for its labels is visible.
            merge(&mut more, &capacity_annotations("1", "1Gi"));
            merge(&mut more, &json!({"spec": {"template": {"metadata": {"labels": {"node.cluster.x-k8s.io/a": ""}}}}}));
            merge(&mut more, &infrastructure_ready(v));
            scalable(ScalableKind::MachinePool, "pool", i32::from(*v % 3), ("0", "5"), &more)
        }
        Entity::Machine(n) => {
            let owner = choose(
                v,
                &["MachineSet/ms0", "MachineSet/ms1", "MachineSet/ms2", "MachinePool/pool", "KubeadmControlPlane/kcp"],
            );
            let mut more =
                choose(v, &[&json!({}), &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})]).clone();
            let ids = ["", "cloud:///zone/n0", "cloud:///zone/n1", "other:///n0", "other:///n2"];
            merge(&mut more, &json!({"spec": {"providerID": choose(v, &ids)}}));
            merge(&mut more, &json!({"status": {"nodeRef": {"name": choose(v, &["", "n0", "n1", "n2"])}}}));
            if let mark @ ("capi-autoscaler-provider t" | "x") = choose(v, &["", "", "capi-autoscaler-provider t", "x"])
            {
                merge(&mut more, &json!({"metadata": {"annotations": {"cluster.x-k8s.io/delete-machine": mark}}}));
            }
            merge(&mut more, &infrastructure_ready(v));
            machine(owner, &format!("m{n}"), &more)
        }
        Entity::Node(n) => node_of(n, v),
        Entity::Template(n) => {
            let name = format!("t{n}");
            match choose(v, &[&json!({"cpu": 2, "memory": "4Gi"}), &json!({"cpu": "1"}), &Value::Null]) {
                Value::Null => Change::TemplateUndecodable(kind(), ObjectKey::new(NAMESPACE, name), "broken".into()),
                capacity => template(&name, capacity),
            }
        }
        Entity::Kind => {
            let states = [KindState::Pending, KindState::Synced, KindState::Unreadable("forbidden".into())];
            Change::Kind(kind(), states[usize::from(*v % 3)].clone())
        }
    }
}

fn node_of(n: u8, v: &mut u16) -> Change {
    let zone = choose(v, &["zone-a", "zone-b"]);
    let team = choose(v, &[&json!({}), &json!({"team": "a"}), &json!({"team": "b"})]).clone();
    let mut more = json!({"metadata": {"labels": team}});
    merge(&mut more, &json!({"metadata": {"labels": {"topology.kubernetes.io/zone": zone}}}));
    merge(
        &mut more,
        &json!({"spec": {"providerID": choose(v, &[
            format!("cloud:///zone/n{n}").as_str(), format!("other:///n{n}").as_str(), "",
        ])}}),
    );
    let shown = choose(
        v,
        &[
            &json!({}),
            &json!({"cpu": "2", "memory": "4Gi"}),
            &json!({"cpu": "2", "memory": "3Gi", "a.example/nic": "1"}),
        ],
    )
    .clone();
    merge(
        &mut more,
        &json!({"status": {
            "capacity": shown, "allocatable": shown,
            "conditions": [{"type": "Ready", "status": choose(v, &["True", "False"]),
                "lastTransitionTime": "2026-01-01T00:00:00Z", "lastHeartbeatTime": "2026-01-01T01:00:00Z"}],
        }}),
    );
    if let owner @ ("m0" | "m1") = choose(v, &["", "m0", "m1"]) {
        let annotations = json!({"cluster.x-k8s.io/machine": owner, "cluster.x-k8s.io/cluster-namespace": NAMESPACE});
        merge(&mut more, &json!({"metadata": {"annotations": annotations}}));
    }
    node(&format!("n{n}"), &more)
}

/// Returns a change of an entity. Sometimes a MachineDeployment, MachineSet or MachinePool doesn't decode.
fn change(entity: Entity, variant: u16) -> Change {
    match (entity, group_id(entity)) {
        (_, Some(id)) if variant % 13 == 7 => Change::ScalableUndecodable(id, "broken".into()),
        _ => set(entity, variant),
    }
}

fn is_undecodable(change: &Change) -> bool {
    matches!(change, Change::ScalableUndecodable(..))
}

fn group_id(entity: Entity) -> Option<GroupId> {
    let (kind, name) = match entity {
        Entity::Deployment(n) => (ScalableKind::MachineDeployment, format!("md{n}")),
        Entity::Set(n) => (ScalableKind::MachineSet, format!("ms{n}")),
        Entity::Pool => (ScalableKind::MachinePool, "pool".to_owned()),
        Entity::Cluster(_) | Entity::Machine(_) | Entity::Node(_) | Entity::Template(_) | Entity::Kind => return None,
    };
    Some(GroupId::new(kind, ObjectKey::new(NAMESPACE, name)))
}

fn delete(entity: Entity) -> Change {
    let key = |name: String| ObjectKey::new(NAMESPACE, name);
    match entity {
        Entity::Cluster(n) => Change::ClusterGone(key(["stage", "other"][usize::from(n)].to_owned())),
        Entity::Deployment(_) | Entity::Set(_) | Entity::Pool => Change::ScalableGone(group_id(entity).unwrap()),
        Entity::Machine(n) => Change::MachineGone(key(format!("m{n}"))),
        Entity::Node(n) => Change::NodeGone(format!("n{n}").into()),
        Entity::Template(n) => Change::TemplateGone(kind(), key(format!("t{n}"))),
        Entity::Kind => Change::Kind(kind(), KindState::Pending),
    }
}

/// Returns the ids of all objects that may be groups.
fn group_ids() -> impl Iterator<Item = GroupId> {
    let entities = (0..2).map(Entity::Deployment).chain((0..3).map(Entity::Set)).chain([Entity::Pool]);
    entities.filter_map(group_id)
}

/// Returns all answers that a caller can get.
fn answers(index: &Index) -> Vec<String> {
    index.refresh();
    let mut answers = vec![format!("{:?}", index.groups())];
    for id in group_ids() {
        answers.push(format!("{id} size {:?}", index.target_size(&id)));
        answers.push(format!("{id} instances {:?}", index.instances(&id)));
        answers.push(format!("{id} served {:?}", index.served(&id)));
        answers.push(format!("{id} view {:?}", index.scale_view(&id)));
    }
    let annotations: HashMap<_, _> =
        [("cluster.x-k8s.io/machine", "m1"), ("cluster.x-k8s.io/cluster-namespace", NAMESPACE)]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into();
    let none = HashMap::new();
    for (provider_id, name) in [
        ("cloud:///zone/n0", "n0"),
        ("cloud:///zone/n1", "n1"),
        ("other:///n0", "n0"),
        ("other:///n2", "n2"),
        ("third:///n2", "n2"),
        ("pending-machine-team-a_m3", "x"),
        ("replica-MachineDeployment-team-a_md0-0", "x"),
        ("", "template-node-for-MachineDeployment/team-a/md1-77"),
    ] {
        for annotations in [&none, &annotations] {
            let query = NodeQuery { name, provider_id, annotations };
            answers.push(format!("{provider_id} {name} {:?}", index.group_of_node(query)));
            answers.push(format!("{provider_id} {name} {:?}", index.resolve(query)));
        }
    }
    answers.push(format!("units {:?}", index.unit_prices()));
    let mut stats = index.stats();
    stats.rollouts.sort_by(|a, b| a.group.cmp(&b.group));
    stats.outside_bounds.sort_by(|a, b| a.group.cmp(&b.group));
    stats.problems.sort_by(|a, b| (&a.group, a.problem).cmp(&(&b.group, b.problem)));
    answers.push(format!("{stats:?}"));
    answers.push(format!("{:?}", index.wanted_kinds()));
    answers
}

/// Returns prices that are kept and differ from those found anew, or counts that differ from those of all instances.
fn miscounted(index: &Index) -> Option<String> {
    let mut found = None;
    let cheapest = index.inner.read().live.find_cheapest_units();
    if index.unit_prices().ok().as_deref() != cheapest.as_ref() {
        found = Some(format!("{:?}, but {cheapest:?}", index.unit_prices()));
    }
    let snapshot = index.snapshot(None, Detail::Instances);
    let mut sizes = Sizes { machines: snapshot.machines as u64, nodes: snapshot.nodes as u64, ..Sizes::default() };
    for group in snapshot.groups {
        let mut counts = InstanceCounts::default();
        for instance in group.instances(true).into_iter().flatten().map(|owned| owned.instance) {
            match instance.state {
                InstanceState::Running => counts.running += 1,
                InstanceState::Creating => counts.creating += 1,
                InstanceState::Deleting => counts.deleting += 1,
            }
            counts.failed += u64::from(instance.error.is_some());
        }
        let (is_served, is_in_need) = match &group.standing {
            Ok(served) => (true, !served.definition.problems.is_empty()),
            Err(excluded) => (false, excluded.reason.is_error() || !excluded.problems.is_empty()),
        };
        sizes.groups += u64::from(is_served);
        sizes.in_need += u64::from(is_in_need);
        let from_zero = group.served().and_then(|served| served.definition.from_zero);
        sizes.remembered += u64::from(from_zero == Some(FromZero::Remembered));
        if group.counts != counts {
            found = Some(format!("{}: {:?}, but {counts:?}", group.id, group.counts));
        }
    }
    if index.sizes() != sizes {
        found = Some(format!("{:?}, but {sizes:?}", index.sizes()));
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn any_order_of_events_equals_a_rebuild(
        steps in vec(step(), 0..80),
        order in any::<u64>(),
    ) {
        let index = Index::new(rules());
        // Each entity's last change; while it doesn't decode, its last decodable change as well.
        let mut world: BTreeMap<Entity, Vec<Change>> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Set(entity, variant) => {
                    let change = change(entity, variant);
                    let known = world.entry(entity).or_default();
                    known.retain(|known| is_undecodable(&change) && !is_undecodable(known));
                    known.push(change.clone());
                    index.apply_and_take_notices(change);
                }
                Step::Delete(entity) => {
                    world.remove(&entity);
                    index.apply_and_take_notices(delete(entity));
                }
                Step::Refresh => index.refresh(),
                Step::Relist(start) => {
                    let changes: Vec<_> = world.values().filter_map(|known| known.last().cloned()).collect();
                    let start = if changes.is_empty() { 0 } else { start.index(changes.len()) };
                    apply(&index, changes[start..].iter().chain(&changes[..start]).cloned());
                }
            }
            prop_assert_eq!(miscounted(&index), None);
        }
        let rebuilt = Index::new(rules());
        let entities: Vec<_> = world.keys().copied().collect();
        let mut changes: Vec<_> = world.into_values().collect();
        // The order differs per case, but is the same when a failing case is run again.
        fastrand::Rng::with_seed(order).shuffle(&mut changes);
        apply(&rebuilt, changes.into_iter().flatten());
        let answered = answers(&index);
        let all = group_ids().collect();
        index.inner.write().live.evaluate_all(all);
        prop_assert_eq!(answered, answers(&index), "a group wasn't evaluated though something it depends on has changed");
        // Observations that outlived their Nodes can't be rebuilt from existing objects.
        index.inner.write().live.forget_the_gone();
        rebuilt.inner.write().live.forget_the_gone();
        prop_assert_eq!(answers(&index), answers(&rebuilt));
        for entity in entities {
            index.apply_and_take_notices(delete(entity));
        }
        index.refresh();
        prop_assert_eq!(index.inner.read().live.leftovers(), Vec::<&str>::new());
    }
}
