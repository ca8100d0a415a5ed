//! The objects that are node groups, and the answers about them.

use anyhow::{Result, ensure};
use e2e::{
    pool::{Pool, Scalable},
    wait::{SOON, eventually},
    world::World,
};
use serde_json::json;

const MIN: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size";
const MAX: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size";

/// `MachineDeployments`, standalone `MachineSets` and `MachinePools` are groups; a `MachineSet` of a
/// `MachineDeployment` isn't.
pub(crate) async fn every_kind_of_group_is_listed_with_its_bounds(world: &World) -> Result<()> {
    let kinds = [
        Pool::new("workers").running(2).bounds(1, 5),
        Pool::new("batch").of(Scalable::MachineSet).running(1).bounds(0, 3),
        Pool::new("spot").of(Scalable::MachinePool).running(1).bounds(1, 1),
        Pool::new("off").running(1).bounds(0, 0),
        Pool::new("unbounded").running(1).annotate(MAX, "7"),
    ];
    let mut created = Vec::new();
    for pool in kinds {
        created.push(pool.create(world).await?);
    }
    let provider = world.serve().await?;
    provider.refresh().await?;
    let listed = provider.groups().await?;
    let listed: Vec<_> = listed.iter().map(|group| (group.id.as_str(), group.min_size, group.max_size)).collect();
    let [workers, batch, spot, _off, unbounded] = created.as_slice() else { unreachable!("as many groups as pools") };
    assert_eq!(
        listed,
        [
            (unbounded.id.as_str(), 0, 7),
            (workers.id.as_str(), 1, 5),
            (spot.id.as_str(), 1, 1),
            (batch.id.as_str(), 0, 3),
        ]
    );
    Ok(())
}

/// An invalid annotation affects only its own group and is logged once, not with every Refresh.
pub(crate) async fn an_invalid_group_is_left_out_and_all_others_go_on(world: &World) -> Result<()> {
    let good = Pool::new("good").running(1).create(world).await?;
    let wrong = [
        ("wrong-text", "one", "3"),
        ("wrong-sign", "-1", "3"),
        ("wrong-order", "4", "3"),
        ("wrong-number", "1.5", "3"),
    ];
    for (name, min, max) in wrong {
        let pool = Pool::new(name).running(1);
        pool.annotate(MIN, min).annotate(MAX, max).create(world).await?;
    }
    let provider = world.serve().await?;
    provider.shows(&[&good.id]).await?;
    assert_eq!(provider.target_size(&good.id).await?, 1);

    let logged = |name: &str| {
        let output = provider.process.output();
        output.lines().filter(|line| line.contains(name)).count()
    };
    for (name, ..) in wrong {
        let what = format!("{name} in the log");
        eventually(&what, SOON, async || {
            ensure!(logged(name) > 0, "nothing in the log:\n{}", provider.process.output());
            Ok(())
        })
        .await?;
        let before = logged(name);
        for _ in 0..5 {
            provider.refresh().await?;
        }
        assert_eq!(logged(name), before, "{name} is in the log again and again");
    }

    // A corrected group is listed.
    world.objects.annotate("MachineDeployment", "wrong-order", json!({ MIN: "2" })).await?;
    let mended = good.id.replace("good", "wrong-order");
    provider.shows(&[&good.id, &mended]).await
}

/// Cluster Autoscaler can't use a group without replicas and without a known capacity.
pub(crate) async fn a_group_without_machines_needs_a_way_to_scale_from_zero(world: &World) -> Result<()> {
    let sized = Pool::new("sized").sized().create(world).await?;
    let half = Pool::new("half-sized").capacity("cpu", "4").create(world).await?;
    Pool::new("unsized").create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&sized.id]).await?;

    // With a replica it is a group, even without a template.
    let size = json!({ "spec": { "replicas": 1 } });
    world.objects.patch(half.kind, &half.name, size).await?;
    provider.shows(&[&half.id, &sized.id]).await
}

/// The annotation on the object itself counts, whatever its value.
pub(crate) async fn a_paused_group_is_no_group_and_its_nodes_have_none(world: &World) -> Result<()> {
    let open = Pool::new("open").running(1).create(world).await?;
    let paused = Pool::new("paused").running(1);
    let paused = paused.annotate("cluster.x-k8s.io/paused", "").create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&open.id]).await?;
    assert!(provider.group_of(&open.nodes[0]).await?.is_some());
    assert_eq!(provider.group_of(&paused.nodes[0]).await?, None);

    let resume = json!({ "cluster.x-k8s.io/paused": null });
    world.objects.annotate(paused.kind, &paused.name, resume).await?;
    provider.shows(&[&open.id, &paused.id]).await?;
    let found = provider.group_of(&paused.nodes[0]).await?;
    assert_eq!(found.map(|group| group.id), Some(paused.id));
    Ok(())
}

/// While a Cluster is paused, its controllers do nothing, and neither must the autoscaler.
pub(crate) async fn a_paused_cluster_has_no_groups(world: &World) -> Result<()> {
    let group = Pool::new("workers").running(1).create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&group.id]).await?;

    let pause = json!({ "spec": { "paused": true } });
    world.objects.patch("Cluster", &world.cluster, pause).await?;
    provider.shows(&[]).await?;
    assert_eq!(provider.group_of(&group.nodes[0]).await?, None);

    let resume = json!({ "spec": { "paused": false } });
    world.objects.patch("Cluster", &world.cluster, resume).await?;
    provider.shows(&[&group.id]).await
}
