//! Wrong or unusual objects of one node group.

use anyhow::Result;
use e2e::{
    autoscaling::Settings,
    controllers::groups::{Group, MIN, Workers},
    infrastructure,
};
use serde_json::json;

use super::{Outcome, PATIENCE, capacity, growing};
use crate::stage::{Side, Stage};

pub(super) async fn bad_annotation(stage: &Stage) -> Result<Outcome> {
    Workers::new("typo").sized().annotate(MIN, "three").create(&stage.testbed).await?;
    Workers::new("workers").sized().create(&stage.testbed).await?;
    grows(stage).await
}

/// Clusters lose a template by a mistake in Git, and in a ClusterClass by a rename.
pub(super) async fn missing_template(stage: &Stage) -> Result<Outcome> {
    let orphan = Workers::new("orphan").create(&stage.testbed).await?;
    stage.testbed.objects.delete("LoopbackMachineTemplate", &orphan.name).await?;
    Workers::new("workers").sized().create(&stage.testbed).await?;
    grows(stage).await
}

/// In-tree gets the permissions that its documentation names, but for the one kind.
pub(super) async fn forbidden_template(stage: &Stage) -> Result<Outcome> {
    const KIND: &str = "ForbiddenMachineTemplate";
    let objects = &stage.testbed.objects;
    infrastructure::install(objects, &[KIND]).await?;
    if stage.side == Side::InTree {
        stage.grant_in_tree_documented(&["loopbackmachinetemplates"]).await?;
    }
    let template = json!({
        "kind": KIND,
        "metadata": { "name": "forbidden" },
        "spec": { "template": { "spec": {} } },
        "status": { "capacity": capacity("4") },
    });
    objects.create(template).await?;
    let group = Workers::new("forbidden").create(&stage.testbed).await?;
    change_template(stage, &group, KIND).await?;
    Workers::new("workers").sized().create(&stage.testbed).await?;
    grows(stage).await
}

/// Lets a group take its Machines from the template of its name of another kind.
async fn change_template(stage: &Stage, group: &Group, kind: &str) -> Result<()> {
    let reference = json!({ "kind": kind, "name": group.name });
    let template = json!({ "spec": { "template": { "spec": { "infrastructureRef": reference } } } });
    stage.testbed.objects.patch(group.kind, &group.name, template).await
}

/// Nothing follows such a template here, so that no Machine comes: the size is what is looked at.
pub(super) async fn irregular_plural(stage: &Stage) -> Result<Outcome> {
    let objects = &stage.testbed.objects;
    infrastructure::install(objects, &["OxMachineTemplate"]).await?;
    let template = json!({
        "kind": "OxMachineTemplate",
        "metadata": { "name": "workers" },
        "spec": { "template": { "spec": {} } },
        "status": { "capacity": capacity("4") },
    });
    objects.create(template).await?;
    let group = Workers::new("workers").create(&stage.testbed).await?;
    change_template(stage, &group, "OxMachineTemplate").await?;
    let mut run = stage.autoscale(growing()).await?;
    stage.pod("web", "3").await?;
    run.turn();
    let grown = run.within(PATIENCE, async || stage.has_size(&group, 1).await).await;
    Ok(Outcome::after("grown", grown))
}

pub(super) async fn integer_capacity(stage: &Stage) -> Result<Outcome> {
    let capacity = json!({ "cpu": 4, "memory": "16Gi", "pods": 110 });
    Workers::new("workers").publishing(capacity).create(&stage.testbed).await?;
    grows(stage).await
}

/// Judges whether a Pod gets a Node.
pub(super) async fn grows(stage: &Stage) -> Result<Outcome> {
    grows_with(stage, growing(), "the Pod runs").await
}

/// The same with these settings, and words for the Pod that runs.
pub(super) async fn grows_with(stage: &Stage, settings: Settings, what: &str) -> Result<Outcome> {
    let mut run = stage.autoscale(settings).await?;
    stage.pod("web", "3").await?;
    run.turn();
    let runs = run.within(PATIENCE, async || stage.runs("web").await).await;
    Ok(Outcome::after(what, runs))
}
