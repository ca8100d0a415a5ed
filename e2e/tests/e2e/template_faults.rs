//! Infrastructure templates that cannot be read affect only their own group.

use std::time::Instant;

use anyhow::{Result, ensure};
use e2e::{
    crds::{self, LATE_TEMPLATE_KIND},
    pool::Pool,
    wait::{SOON, eventually},
    world::World,
};
use serde_json::json;
use tonic::Code;

use crate::templates::{capacity, infrastructure, template};

/// The kind isn't installed, isn't allowed, or the object is missing: a group with Machines is served, one without has
/// no template.
pub(crate) async fn a_missing_kind_a_forbidden_kind_and_a_missing_template_hold_up_nothing(
    world: &World,
) -> Result<()> {
    let status = json!({ "capacity": { "cpu": "8", "memory": "32Gi" } });
    infrastructure(world, "ForbiddenMachineTemplate", "there", &status).await?;
    infrastructure(world, "DevMachineTemplate", "there", &status).await?;
    let good = Pool::new("good").template("DevMachineTemplate", "there").create(world).await?;
    let troubles = [
        ("missing-kind", "NowhereMachineTemplate", "there"),
        ("forbidden-kind", "ForbiddenMachineTemplate", "there"),
        ("missing-template", "DevMachineTemplate", "not-there"),
    ];
    let mut served = vec![good.id.clone()];
    for (name, kind, template) in troubles {
        let empty = Pool::new(&format!("{name}-empty")).template(kind, template);
        empty.create(world).await?;
        let running = Pool::new(name).running(1).template(kind, template).create(world).await?;
        served.push(running.id);
        // Its annotations are enough.
        let sized = Pool::new(&format!("{name}-sized")).sized().template(kind, template);
        served.push(sized.create(world).await?.id);
    }
    let provider = world.serve().await?;
    let ids: Vec<&str> = served.iter().map(String::as_str).collect();
    provider.shows(&ids).await?;

    let start = Instant::now();
    for id in &served {
        provider.refresh().await?;
        provider.target_size(id).await?;
        provider.instances(id).await?;
        match provider.template(id).await {
            Ok(answer) => ensure!(!answer.node_bytes.is_empty(), "{id}: an empty template"),
            // A missing template is a valid answer, except for a group that can scale from zero.
            Err(status) => {
                let none = status.code() == Code::Unimplemented;
                ensure!(none && !id.ends_with("-sized"), "{id}: {status}");
            }
        }
    }
    ensure!(start.elapsed().as_secs() < 5, "the calls took {:?}", start.elapsed());
    let found = capacity(&template(&provider, &good.id).await?);
    assert_eq!(found.get("cpu").map(String::as_str), Some("8"));
    for (_, kind, _) in troubles {
        eventually(&format!("{kind} in the log"), SOON, async || {
            let output = provider.process.output();
            ensure!(output.contains(kind), "the log says nothing of it:\n{output}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// An infrastructure provider may be installed after the program was started.
pub(crate) async fn a_kind_installed_later_is_found(world: &World) -> Result<()> {
    let good = Pool::new("good").running(1).create(world).await?;
    let late = Pool::new("late").template(LATE_TEMPLATE_KIND, "big").create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&good.id]).await?;

    crds::install_template(&world.objects, LATE_TEMPLATE_KIND).await?;
    let status = json!({ "capacity": { "cpu": "8", "memory": "32Gi" } });
    infrastructure(world, LATE_TEMPLATE_KIND, "big", &status).await?;
    eventually("group of the late kind", 2 * SOON, async || {
        let ids = provider.refreshed_ids().await?;
        ensure!(ids == [good.id.as_str(), late.id.as_str()], "groups are {ids:?}");
        Ok(())
    })
    .await?;
    let found = capacity(&template(&provider, &late.id).await?);
    assert_eq!(found.get("cpu").map(String::as_str), Some("8"));
    Ok(())
}

/// One invalid quantity, in a status or in an annotation.
pub(crate) async fn an_unreadable_capacity_spoils_only_its_own_group(world: &World) -> Result<()> {
    let status = json!({ "capacity": { "cpu": "eight", "memory": "32Gi" } });
    infrastructure(world, "DevMachineTemplate", "unreadable", &status).await?;
    let status = json!({ "capacity": { "cpu": "8", "memory": "32Gi" } });
    infrastructure(world, "DevMachineTemplate", "readable", &status).await?;
    let good = Pool::new("good").template("DevMachineTemplate", "readable").create(world).await?;
    let from_status = Pool::new("from-status").template("DevMachineTemplate", "unreadable");
    from_status.create(world).await?;
    let from_annotation = Pool::new("from-annotation").sized().capacity("cpu", "four");
    from_annotation.create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&good.id]).await?;
    let found = capacity(&template(&provider, &good.id).await?);
    assert_eq!(found.get("cpu").map(String::as_str), Some("8"));
    Ok(())
}
