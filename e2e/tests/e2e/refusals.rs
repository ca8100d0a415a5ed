//! An API server that permanently refuses a size, by admission. A size is tried before anything is deleted.

use anyhow::{Result, ensure};
use e2e::{
    objects::CAPI_GROUP,
    pool::{Group, Pool},
    proto::NodeGroupAutoscalingOptions,
    provider::{Provider, assert_refused},
    wait::{SOON, eventually},
    webhook::Webhook,
    world::World,
};
use serde_json::{Value, json};
use tonic::Code;

use crate::sizes::assert_scale;

const WORDS: &str = "the quota of this team is spent";
/// The CEL expression for a changed size.
const CHANGES_SIZE: &str = "object.spec.replicas != oldObject.spec.replicas";

/// 403, by a webhook, which judges dry runs as well.
pub(crate) async fn a_size_that_a_webhook_refuses_leaves_nothing_behind(world: &World) -> Result<()> {
    let webhook = Webhook::start(WORDS).await?;
    let configuration = webhook_configuration(world, &webhook.client_config());
    leaves_nothing_behind(world, &[configuration]).await
}

/// 403, which a missing right returns as well.
pub(crate) async fn a_size_that_a_policy_forbids_leaves_nothing_behind(world: &World) -> Result<()> {
    leaves_nothing_behind(world, &policy(world)).await
}

/// 500, since the API server can't reach the webhook. It may be temporary, so the caller is asked to retry.
pub(crate) async fn a_webhook_that_does_not_answer_is_waited_for(world: &World) -> Result<()> {
    let group = Pool::new("workers").running(3).create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&group.id]).await?;
    let nowhere = json!({ "url": format!("https://127.0.0.1:{}/", e2e::process::free_port()?) });
    let objects = [webhook_configuration(world, &nowhere)];
    let guard = Guard::put_up(world, &objects).await?;
    let refused = provider.increase(&group.id, 1).await;
    assert_refused(refused, Code::Unavailable, &["failed calling webhook"])?;
    assert_scale(world, &group, 3).await?;
    guard.take_down(world).await?;
    provider.increase(&group.id, 1).await?;
    assert_scale(world, &group, 4).await
}

/// Returns true if the options of a group let no Node be chosen.
pub(crate) async fn are_held(provider: &Provider, group: &Group) -> Result<bool> {
    let defaults = NodeGroupAutoscalingOptions { scale_down_utilization_threshold: 0.5, ..Default::default() };
    match provider.options(&group.id, defaults).await {
        Ok(options) => Ok(options.is_some_and(|options| options.scale_down_utilization_threshold < 0.0)),
        Err(status) if status.code() == Code::Unimplemented => Ok(false),
        Err(status) => Err(status.into()),
    }
}

async fn leaves_nothing_behind(world: &World, objects: &[Value]) -> Result<()> {
    let group = Pool::new("workers").running(3).create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&group.id]).await?;
    ensure!(!are_held(&provider, &group).await?, "the Nodes are held before anything is refused");
    let guard = Guard::put_up(world, objects).await?;

    assert_refused(provider.increase(&group.id, 1).await, Code::FailedPrecondition, &[WORDS])?;
    assert_refused(provider.delete(&group.id, &group.nodes[..2]).await, Code::FailedPrecondition, &[WORDS])?;
    is_untouched(world, &provider, &group).await?;
    // Otherwise Cluster Autoscaler would drain Node after Node for nothing.
    ensure!(are_held(&provider, &group).await?, "the options let Nodes be chosen");

    guard.take_down(world).await?;
    is_untouched(world, &provider, &group).await?;
    provider.delete(&group.id, &group.nodes[2..]).await?;
    assert_scale(world, &group, 2).await?;
    world.objects.assert_deleting(&["workers-2"]).await?;
    ensure!(!are_held(&provider, &group).await?, "the options still keep Nodes from being chosen");
    Ok(())
}

/// Checks that the size is 3, and that nothing was written.
pub(crate) async fn is_untouched(world: &World, provider: &Provider, group: &Group) -> Result<()> {
    assert_eq!(provider.target_size(&group.id).await?, 3);
    assert_scale(world, group, 3).await?;
    world.objects.assert_deleting(&[]).await
}

/// Admission objects that are in force.
struct Guard<'a> {
    objects: &'a [Value],
    probe: Group,
}

impl<'a> Guard<'a> {
    /// Creates them, and waits until the API server enforces them.
    async fn put_up(world: &World, objects: &'a [Value]) -> Result<Self> {
        let probe = Pool::new("probe").bounds(0, 0).missing(1).create(world).await?;
        for object in objects {
            world.objects.create(object.clone()).await?;
        }
        let guard = Self { objects, probe };
        let mut size = 1;
        eventually("a refusal", SOON, async || {
            size += 1;
            ensure!(guard.resize(world, size).await.is_err(), "the API server refuses nothing");
            Ok(())
        })
        .await?;
        Ok(guard)
    }

    /// Deletes them, and waits until the API server no longer enforces them.
    async fn take_down(self, world: &World) -> Result<()> {
        for object in self.objects {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            world.objects.delete(&text(&object["kind"]), &text(&object["metadata"]["name"])).await?;
        }
        eventually("the end of refusals", SOON, async || self.resize(world, 1000).await).await
    }

    async fn resize(&self, world: &World, size: i32) -> Result<()> {
        world.objects.patch(self.probe.kind, &self.probe.name, json!({ "spec": { "replicas": size } })).await
    }
}

/// Returns the rules for changes of the size of MachineDeployments, both ways.
fn rules() -> Value {
    json!([{
        "apiGroups": [CAPI_GROUP],
        "apiVersions": ["*"],
        "operations": ["UPDATE"],
        "resources": ["machinedeployments", "machinedeployments/scale"],
    }])
}

/// Returns the selector of the scenario's namespace.
fn here(world: &World) -> Value {
    json!({ "matchLabels": { "kubernetes.io/metadata.name": world.namespace } })
}

fn webhook_configuration(world: &World, client: &Value) -> Value {
    json!({
        "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": world.namespace },
        "webhooks": [{
            "name": "sizes.e2e.test",
            "clientConfig": client,
            "rules": rules(),
            "namespaceSelector": here(world),
            "matchConditions": [{ "name": "size", "expression": CHANGES_SIZE }],
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }],
    })
}

fn policy(world: &World) -> [Value; 2] {
    let validation = json!({ "expression": format!("!({CHANGES_SIZE})"), "message": WORDS, "reason": "Forbidden" });
    let metadata = json!({ "name": world.namespace });
    [
        json!({
            "kind": "ValidatingAdmissionPolicy",
            "metadata": metadata,
            "spec": {
                "matchConstraints": { "resourceRules": rules(), "namespaceSelector": here(world) },
                "validations": [validation],
            },
        }),
        json!({
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": metadata,
            "spec": { "policyName": world.namespace, "validationActions": ["Deny"] },
        }),
    ]
}
