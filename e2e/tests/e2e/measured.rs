//! The cost of commands on a real API server, in ratio to bare PATCHes of the same run. Run by hand, since times say
//! nothing on a busy machine; the figures are in docs/design/performance.md.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use e2e::{audit::answered, pool::Pool, world::World};
use futures::{StreamExt as _, TryStreamExt as _, future::try_join_all, stream};
use serde_json::json;

/// The number of rounds, each with Nodes of its own.
const ROUNDS: usize = 5;
const DELETES: usize = 50;
/// The number of concurrent writes, the same as the program's.
const SIDE_BY_SIDE: usize = 16;

/// Fifty concurrent DeleteNodes of one Node each take fifty deletes, a size that is tried and written, and no read.
pub(crate) async fn fifty_deletes_at_once(world: &World) -> Result<()> {
    let (mut ids, mut all_named) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let count = 2 * DELETES;
        let group = Pool::new(&format!("workers-{round}")).bounds(0, 200).running(count).create(world).await?;
        let provider = world.serve().await?;
        ids.push(group.id.clone());
        provider.shows(&ids.iter().map(String::as_str).collect::<Vec<_>>()).await?;
        let (named, others) = group.machines.split_at(DELETES);

        let patch = json!({ "metadata": { "annotations": { "bare": format!("{round}") } } });
        let began = Instant::now();
        world.objects.patch(group.kind, &group.name, patch.clone()).await?;
        let patches = stream::iter(others).map(|name| world.objects.patch("Machine", name, patch.clone()));
        patches.buffer_unordered(SIDE_BY_SIDE).try_for_each(|()| async { Ok(()) }).await?;
        let again = json!({ "metadata": { "annotations": { "bare": "again" } } });
        world.objects.patch(group.kind, &group.name, again).await?;
        let bare = began.elapsed();

        let before = answered(world, &world.user)?.len();
        let began = Instant::now();
        let deletes = group.nodes[..DELETES].iter().map(|node| provider.delete(&group.id, std::slice::from_ref(node)));
        try_join_all(deletes).await?;
        let took = began.elapsed();

        all_named.extend_from_slice(named);
        world.objects.assert_deleting(&all_named.iter().map(String::as_str).collect::<Vec<_>>()).await?;
        let requests = answered(world, &world.user)?;
        let of = |verb: &str, resource: &str| {
            let such = requests[before..].iter().filter(|it| it.verb == verb && it.resource == resource);
            such.count()
        };
        let (deletes, writes) = (of("delete", "machines"), of("patch", "machinedeployments/scale"));
        let reads = of("get", "machines") + of("get", "machinedeployments") + of("list", "machines");
        println!(
            "round {round}: {:.1} ms, bare {:.1} ms, ratio {:.2}: {deletes} deletes, {writes} writes of the group, {reads} reads",
            millis(took),
            millis(bare),
            took.as_secs_f64() / bare.as_secs_f64(),
        );
        ensure!(deletes == DELETES && deletes + writes + reads <= DELETES + 3, "{requests:#?}");
        drop(provider);
    }
    Ok(())
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
