//! The template Node of a group that grows.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use e2e::{
    fixtures::{self, Moment},
    pool::Pool,
    provider::Provider,
    wait::{SOON, eventually},
    world::World,
};
use k8s_pb::{api::core::v1::Node, apimachinery::pkg::api::resource::Quantity};
use prost::Message;
use serde_json::{Value, json};

const ARCHITECTURE: &str = "kubernetes.io/arch";
const OPERATING_SYSTEM: &str = "kubernetes.io/os";

/// Annotations of the group are enough.
pub(crate) async fn annotations_give_the_capacity(world: &World) -> Result<()> {
    let pool = Pool::new("workers")
        .sized()
        .capacity("ephemeral-disk", "80Gi")
        .capacity("gpu-type", "nvidia.com/gpu")
        .capacity("gpu-count", "2");
    let group = pool.create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&group.id]).await?;

    let node = template(&provider, &group.id).await?;
    let expected =
        [("cpu", "4"), ("memory", "16Gi"), ("ephemeral-storage", "80Gi"), ("nvidia.com/gpu", "2"), ("pods", "110")];
    assert_capacity(&node, &expected);
    assert_eq!(label(&node, ARCHITECTURE), "amd64");
    assert_eq!(label(&node, OPERATING_SYSTEM), "linux");
    let conditions = node.status.context("no status")?.conditions;
    let ready = conditions.iter().find(|condition| condition.r#type.as_deref() == Some("Ready"));
    ensure!(
        ready.is_some_and(|ready| ready.status.as_deref() == Some("True")),
        "the template is not ready: {conditions:?}"
    );
    Ok(())
}

/// The resource is found by discovery, and integers in a capacity are accepted like strings.
pub(crate) async fn status_capacity_is_found_whatever_its_plural(world: &World) -> Result<()> {
    let status = json!({
        "capacity": { "cpu": 8, "memory": "32Gi", "pods": 58 },
        "nodeInfo": { "architecture": "arm64", "operatingSystem": "linux" },
    });
    infrastructure(world, "OxMachineTemplate", "big", &status).await?;
    let group = Pool::new("workers").template("OxMachineTemplate", "big").create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&group.id]).await?;

    let node = template(&provider, &group.id).await?;
    assert_capacity(&node, &[("cpu", "8"), ("memory", "32Gi"), ("pods", "58")]);
    assert_eq!(label(&node, ARCHITECTURE), "arm64");
    Ok(())
}

/// Annotations on the group override the capacity that an infrastructure provider publishes; an empty nodeInfo is
/// ignored.
pub(crate) async fn annotations_win_over_status_capacity(world: &World) -> Result<()> {
    let status = json!({
        "capacity": { "cpu": "8", "memory": "32Gi" },
        "nodeInfo": { "architecture": "", "operatingSystem": "" },
    });
    infrastructure(world, "DevMachineTemplate", "big", &status).await?;
    let pool = Pool::new("workers").template("DevMachineTemplate", "big");
    let pool = pool.capacity("memory", "30Gi").capacity("maxPods", "42");
    let group = pool.capacity("labels", "zone-kind=edge").create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&group.id]).await?;

    let node = template(&provider, &group.id).await?;
    assert_capacity(&node, &[("cpu", "8"), ("memory", "30Gi"), ("pods", "42")]);
    assert_eq!(label(&node, ARCHITECTURE), "amd64");
    assert_eq!(label(&node, OPERATING_SYSTEM), "linux");
    assert_eq!(label(&node, "zone-kind"), "edge");
    Ok(())
}

/// A template has only the labels that Cluster API propagates to Nodes.
pub(crate) async fn labels_and_taints_come_from_the_template_and_annotations(world: &World) -> Result<()> {
    let pool = Pool::new("workers")
        .sized()
        .node_label("node-role.kubernetes.io/worker", "")
        .node_label("disk.node.cluster.x-k8s.io/kind", "ssd")
        .node_label("example.com/not-synced", "yes")
        .capacity("labels", "example.com/written=yes,disk.node.cluster.x-k8s.io/kind=nvme")
        .capacity("taints", "dedicated=batch:NoSchedule,spot:NoExecute");
    let group = pool.create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&group.id]).await?;

    let node = template(&provider, &group.id).await?;
    assert_eq!(label(&node, "node-role.kubernetes.io/worker"), "");
    assert_eq!(label(&node, "disk.node.cluster.x-k8s.io/kind"), "nvme");
    assert_eq!(label(&node, "example.com/written"), "yes");
    assert_eq!(label(&node, "example.com/not-synced"), "(no label)");
    ensure!(label(&node, "kubernetes.io/hostname") != "(no label)", "no hostname");

    let taints = node.spec.context("no spec")?.taints;
    let mut taints: Vec<_> = taints
        .iter()
        .map(|taint| {
            let text = |part: &Option<String>| part.clone().unwrap_or_default();
            (text(&taint.key), text(&taint.value), text(&taint.effect))
        })
        .collect();
    taints.sort();
    let expected = [("dedicated", "batch", "NoSchedule"), ("spot", "", "NoExecute")];
    let expected = expected.map(|(key, value, effect)| (key.into(), value.into(), effect.into()));
    assert_eq!(taints, expected);
    Ok(())
}

/// Recorded objects; only their template's capacity is written by hand.
pub(crate) async fn a_real_group_has_the_capacity_of_its_real_template(world: &World) -> Result<()> {
    let recorded = fixtures::load(world, Moment::Steady).await?;
    let id = recorded.name("MachineDeployment/team-a/stage-md-0-mnr6p");
    let provider = world.serve().await?;
    provider.shows(&[&id]).await?;
    // The kind of template is watched once a group names it, and no group waits for that.
    let node = eventually("template", SOON, async || template(&provider, &id).await).await?;
    let expected = [("cpu", "8"), ("memory", "32Gi"), ("ephemeral-storage", "100Gi"), ("pods", "110")];
    assert_capacity(&node, &expected);
    Ok(())
}

/// For clusters of one architecture whose templates lack it.
pub(crate) async fn the_default_architecture_can_be_set(world: &World) -> Result<()> {
    let group = Pool::new("workers").sized().create(world).await?;
    let workload = format!("--workload-kubeconfig={}", world.kubeconfig()?.display());
    let environment = [("CAPI_SCALE_ZERO_DEFAULT_ARCH", "ppc64le")];
    let mut provider = world.spawn_bare(&[&world.scope(), &workload], &environment)?;
    provider.ready().await?;
    provider.shows(&[&group.id]).await?;
    let node = template(&provider, &group.id).await?;
    assert_eq!(label(&node, ARCHITECTURE), "ppc64le");
    Ok(())
}

/// Templates are cached in encoded form, and rebuilt when their sources change.
pub(crate) async fn a_changed_capacity_is_answered(world: &World) -> Result<()> {
    let status = json!({ "capacity": { "cpu": "8", "memory": "32Gi" } });
    infrastructure(world, "DevMachineTemplate", "big", &status).await?;
    let group = Pool::new("workers").template("DevMachineTemplate", "big").create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&group.id]).await?;
    assert_capacity(&template(&provider, &group.id).await?, &[("cpu", "8")]);

    let bigger = json!({ "capacity": { "cpu": "16" } });
    world.objects.patch_status("DevMachineTemplate", "big", bigger).await?;
    eventually("capacity of the changed template", SOON, async || {
        let found = capacity(&template(&provider, &group.id).await?);
        ensure!(found.get("cpu").is_some_and(|cpu| cpu == "16"), "capacity is {found:?}");
        Ok(())
    })
    .await?;

    let annotation = json!({ "capacity.cluster-autoscaler.kubernetes.io/cpu": "15" });
    world.objects.annotate(group.kind, &group.name, annotation).await?;
    eventually("capacity of the changed annotation", SOON, async || {
        let found = capacity(&template(&provider, &group.id).await?);
        ensure!(found.get("cpu").is_some_and(|cpu| cpu == "15"), "capacity is {found:?}");
        Ok(())
    })
    .await
}

/// Every field of a template from each of its sources, in both wire fields.
pub(crate) async fn a_template_is_the_same_node_in_both_fields_field_by_field(world: &World) -> Result<()> {
    let status = json!({
        "capacity": { "cpu": 8, "memory": "32Gi", "storage": "80Gi", "example.com/nic": "2", "bad": "much" },
        "nodeInfo": { "architecture": "arm64", "operatingSystem": "" },
    });
    infrastructure(world, "DevMachineTemplate", "big", &status).await?;
    let pool = Pool::new("workers").template("DevMachineTemplate", "big");
    let pool = pool.capacity("memory", "30Gi").capacity("maxPods", "42").capacity("taints", "spot:NoExecute");
    let group = pool.capacity("labels", "tier=batch").create(world).await?;
    let own = json!({
        "capacity.capi-autoscaler-provider.io/overhead": "cpu=100m,memory=2Gi",
        "capacity.capi-autoscaler-provider.io/resources": "hugepages-2Mi=1Gi",
    });
    world.objects.annotate(group.kind, &group.name, own).await?;
    let provider = world.serve().await?;
    provider.shows(&[&group.id]).await?;

    let answer = eventually("template with all parts", SOON, async || {
        let answer = provider.template(&group.id).await?;
        let node = Node::decode(answer.node_bytes.clone())?;
        let found = capacity(&node);
        ensure!(found.contains_key("example.com/nic") && found.contains_key("hugepages-2Mi"), "capacity is {found:?}");
        Ok(answer)
    })
    .await?;
    for bytes in [answer.node_info.clone(), answer.node_bytes.clone()] {
        let node = Node::decode(bytes)?;
        let metadata = node.metadata.context("no metadata")?;
        let name = metadata.name.context("no name")?;
        assert_eq!(name, format!("{}-template", group.name));
        let labels = [
            (ARCHITECTURE, "arm64"),
            ("kubernetes.io/hostname", &name),
            (OPERATING_SYSTEM, "linux"),
            ("tier", "batch"),
        ];
        assert_eq!(metadata.labels, labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
        assert_eq!(metadata.annotations, BTreeMap::new());

        let spec = node.spec.context("no spec")?;
        let taints: Vec<_> = spec.taints.iter().map(|taint| (taint.key.as_deref(), taint.effect.as_deref())).collect();
        assert_eq!(taints, [(Some("spot"), Some("NoExecute"))]);
        assert_eq!((spec.provider_id, spec.unschedulable), (None, None));

        let status = node.status.context("no status")?;
        let amounts = |resources: &BTreeMap<String, Quantity>| {
            let amount = |(name, amount): (&String, &Quantity)| {
                format!("{name}={}", amount.string.as_deref().unwrap_or_default())
            };
            resources.iter().map(amount).collect::<Vec<_>>()
        };
        let rest = ["ephemeral-storage=80Gi", "example.com/nic=2", "hugepages-2Mi=1Gi"];
        assert_eq!(amounts(&status.capacity), [&["cpu=8"], &rest[..], &["memory=30Gi", "pods=42"]].concat());
        // The kubelet takes huge pages, as the overhead, out of the memory.
        assert_eq!(amounts(&status.allocatable), [&["cpu=7900m"], &rest[..], &["memory=27Gi", "pods=42"]].concat());
        let conditions = status.conditions.iter().map(|it| (it.r#type.as_deref(), it.status.as_deref()));
        let mut conditions: Vec<_> =
            conditions.map(|(kind, status)| (kind.unwrap_or_default(), status.unwrap_or_default())).collect();
        conditions.sort_unstable();
        let expected =
            ["DiskPressure", "MemoryPressure", "NetworkUnavailable", "PIDPressure"].map(|kind| (kind, "False"));
        assert_eq!(conditions, [&expected[..], &[("Ready", "True")]].concat());
    }
    let again = provider.template(&group.id).await?;
    ensure!(again == answer, "the template differs from call to call");
    Ok(())
}

/// The resources that a Node reserves are subtracted from the templates of all groups of the same kind.
pub(crate) async fn the_reservation_of_a_real_node_is_subtracted_from_all_templates_of_its_kind(
    world: &World,
) -> Result<()> {
    let status = json!({ "capacity": { "cpu": "4", "memory": "16Gi" } });
    infrastructure(world, "DevMachineTemplate", "alike", &status).await?;
    let running = Pool::new("running").running(1).template("DevMachineTemplate", "alike").create(world).await?;
    let empty = Pool::new("empty").template("DevMachineTemplate", "alike").create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&empty.id, &running.id]).await?;
    let less = json!({ "allocatable": { "memory": "14Gi" } });
    let node = running.nodes.first().context("no Node")?;
    world.objects.patch_status("Node", &node.name, less).await?;
    for group in [&running, &empty] {
        eventually("allocatable of the real Node", SOON, async || {
            let node = Node::decode(provider.template(&group.id).await?.node_bytes)?;
            let status = node.status.context("no status")?;
            let memory = |resources: &BTreeMap<String, Quantity>| resources.get("memory")?.string.clone();
            let found = (memory(&status.capacity), memory(&status.allocatable));
            ensure!(found == (Some("16Gi".into()), Some("14Gi".into())), "memory is {found:?}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// Creates an infrastructure template with a status.
pub(crate) async fn infrastructure(world: &World, kind: &str, name: &str, status: &Value) -> Result<()> {
    let template = json!({
        "kind": kind,
        "metadata": { "name": name },
        "spec": {},
        "status": status,
    });
    world.objects.create(template).await?;
    Ok(())
}

/// Returns the template Node of a group, which must be the same in the old field and in the new.
pub(crate) async fn template(provider: &Provider, id: &str) -> Result<Node> {
    let answer = provider.template(id).await?;
    ensure!(!answer.node_bytes.is_empty(), "an empty template makes the caller panic");
    ensure!(answer.node_bytes == answer.node_info, "the old field and the new differ");
    let node = Node::decode(answer.node_bytes)?;
    // Pods are placed by allocatable, and no reserved resources are known.
    let status = node.status.as_ref().context("no status")?;
    ensure!(status.allocatable == status.capacity, "allocatable is not capacity: {status:?}");
    Ok(node)
}

pub(crate) fn capacity(node: &Node) -> BTreeMap<String, String> {
    let status = node.status.iter();
    status
        .flat_map(|status| &status.capacity)
        .map(|(name, quantity)| (name.clone(), quantity.string.clone().unwrap_or_default()))
        .collect()
}

/// Compares the named resources; there may be more.
pub(crate) fn assert_capacity(node: &Node, expected: &[(&str, &str)]) {
    let mut found = capacity(node);
    found.retain(|name, _| expected.iter().any(|(expected, _)| expected == name));
    let expected: BTreeMap<_, _> = expected.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
    assert_eq!(found, expected);
}

/// Returns the labels of a group's template.
pub(crate) async fn labels(provider: &Provider, id: &str) -> Result<BTreeMap<String, String>> {
    let node = template(provider, id).await?;
    Ok(node.metadata.map(|metadata| metadata.labels).unwrap_or_default())
}

pub(crate) fn label(node: &Node, key: &str) -> String {
    let labels = node.metadata.as_ref().map(|metadata| &metadata.labels);
    let value = labels.and_then(|labels| labels.get(key));
    value.map_or_else(|| "(no label)".to_owned(), Clone::clone)
}
