//! Both versions of Cluster API's contract, which it converts into each other.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use e2e::{
    controllers::{
        groups::{GRACE, Workers},
        instances::{ObservedInstance, instances},
        machines::Machine,
        testbed::{POLL_INTERVAL, TIMEOUT, Testbed},
    },
    pool::Scalable,
    proto::NodeGroupTemplateNodeInfoResponse,
    provider::Provider,
    wait::every,
};
use tonic::Status;

/// The program gives the same answers about Machines in every state with either version.
pub(crate) async fn both_versions_of_the_contract_lead_to_the_same_answers(testbed: &Testbed) -> Result<()> {
    let old = testbed.serve_cluster(&testbed.cluster, &[("CAPI_VERSION", "v1beta1")]).await?;
    let new = testbed.serve_cluster(&testbed.cluster, &[("CAPI_VERSION", "v1beta2")]).await?;
    let mut groups = Vec::new();
    for behaviour in ["joins", "never-join", "fail", "no-capacity"] {
        groups.push(
            Workers::new(behaviour).sized().that(behaviour).annotate(GRACE, "0").replicas(1).create(testbed).await?,
        );
    }
    groups.push(Workers::new("bare").of(Scalable::MachineSet).replicas(1).create(testbed).await?);
    let ids: Vec<&str> = groups.iter().map(|group| group.id.as_str()).collect();
    old.shows(&ids).await?;
    new.shows(&ids).await?;
    testbed.running(&groups[0], 1).await?;
    testbed.running(&groups[4], 1).await?;
    let provisioned = |machines: &[Machine]| machines.iter().any(|machine| machine.phase == "Provisioned");
    testbed.machines_that(&groups[1], "a provisioned Machine", provisioned).await?;

    let classes = every(POLL_INTERVAL, "the same answers", TIMEOUT, async || {
        let (answers, expected) = (answers(&old, &ids).await?, answers(&new, &ids).await?);
        ensure!(answers == expected, "v1beta1: {answers:#?}\nv1beta2: {expected:#?}");
        let classes: Vec<_> = ids.iter().flat_map(|id| expected[*id].values().map(|(_, class)| *class)).collect();
        ensure!(classes.contains(&Some(1)), "classes are {classes:?}");
        Ok(classes)
    })
    .await?;
    // A failure message alone means nothing in either version.
    assert_eq!(classes, [None, None, None, Some(1), None]);
    // Each program watches the kinds of templates by itself, and one may be later than the other.
    every(POLL_INTERVAL, "the same templates", TIMEOUT, async || {
        for id in &ids {
            let (old, new) = (old.template(id).await, new.template(id).await);
            let bytes = |answer: Result<NodeGroupTemplateNodeInfoResponse, Status>| {
                answer.map(|answer| answer.node_bytes).map_err(|status| status.code())
            };
            let (old, new) = (bytes(old), bytes(new));
            ensure!(old == new, "templates of {id} are {old:?} and {new:?}");
        }
        Ok(())
    })
    .await
}

async fn answers(provider: &Provider, ids: &[&str]) -> Result<BTreeMap<String, BTreeMap<String, ObservedInstance>>> {
    let mut answers = BTreeMap::new();
    for id in ids {
        answers.insert((*id).to_owned(), instances(provider, id).await?);
    }
    Ok(answers)
}
