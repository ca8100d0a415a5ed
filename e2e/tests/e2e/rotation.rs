//! Credentials that are rotated during calls: no call fails because of it.

use std::{
    cell::Cell,
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use e2e::{
    pool::{Group, Pool},
    provider::Provider,
    users::{self, User, base64},
    wait::{SOON, eventually},
    world::World,
};
use k8s_openapi::api::{
    authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{Api, api::PostParams};
use serde_json::{Value, json};
const ACCOUNT: &str = "workload";

/// The Secret's token is revoked and replaced: an API server that answers 401 makes the program read the Secret at
/// once.
pub(crate) async fn a_revoked_token_is_followed_by_the_next_one_in_the_secret(world: &World) -> Result<()> {
    let group = Pool::new("workers").running(2).create(world).await?;
    let way = world.plane.proxy().await?;
    let account = User { name: format!("system:serviceaccount:{}:{ACCOUNT}", world.namespace) };
    world.objects.create(json!({ "kind": "ServiceAccount", "metadata": { "name": ACCOUNT } })).await?;
    world.objects.create(users::bind_role(&account)).await?;
    let kubeconfig = |token: &str| with_token(world.plane.kubeconfig_through(&way, &account), token);

    world.share_kubeconfig(&kubeconfig(&token(world, "first").await?)).await?;
    let mut provider = world.spawn_bare(&[&world.only_cluster()], &[])?;
    provider.ready().await?;
    provider.shows(&[&group.id]).await?;
    let calls = Cell::new(0);
    let rotation = async {
        // A token ends with the Secret that it is bound to. An API server caches for seconds that it was valid.
        world.objects.delete("Secret", "first").await?;
        let is_refused = || {
            let all = fs::read_to_string(provider.process.log()).unwrap_or_default();
            all.contains("Unauthorized") || all.contains("401")
        };
        let next_cut = Cell::new(Instant::now());
        eventually("a refusal of the first token", SOON, async || {
            // Each cut restarts the watch of Nodes, which takes a moment.
            if Instant::now() >= next_cut.get() {
                way.cut_once();
                next_cut.set(Instant::now() + Duration::from_secs(3));
            }
            ensure!(is_refused(), "no request was refused");
            Ok(())
        })
        .await?;
        let next = kubeconfig(&token(world, "second").await?);
        let changed = Instant::now();
        put_kubeconfig(world, &next).await?;
        a_new_node_is_seen(world, &provider).await?;
        Ok::<_, anyhow::Error>(changed.elapsed())
    };
    let took = tokio::select! {
        took = rotation => took?,
        failed = ask_for_ever(&provider, &group, &calls) => return failed,
    };
    ensure!(calls.get() > 0, "no call was made meanwhile");
    ensure!(took < Duration::from_secs(45), "it took {} s", took.as_secs());
    Ok(())
}

/// Makes the calls of Cluster Autoscaler's loop, and ends with the first one that fails.
async fn ask_for_ever(provider: &Provider, group: &Group, calls: &Cell<u64>) -> Result<()> {
    loop {
        provider.refresh().await?;
        ensure!(provider.groups().await?.iter().any(|it| it.id == group.id), "{} is no group", group.id);
        ensure!(provider.target_size(&group.id).await? == 2, "another size");
        ensure!(provider.instances(&group.id).await?.len() == 2, "other instances");
        for node in &group.nodes {
            let found = provider.group_of(node).await?.context("a Node without a group")?;
            ensure!(found.id == group.id, "{found:?}");
        }
        calls.set(calls.get() + 6);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until a new Node is seen in the workload cluster: only the Node has the providerID of the single Machine of a
/// new group.
async fn a_new_node_is_seen(world: &World, provider: &Provider) -> Result<()> {
    let group = Pool::new("late").pending(1).create(world).await?;
    let name = format!("{}-late", world.cluster);
    let id = format!("e2e:///{name}");
    world.objects.create(json!({ "kind": "Node", "metadata": { "name": name }, "spec": { "providerID": id } })).await?;
    let status = json!({ "phase": "Running", "nodeRef": { "name": name } });
    world.objects.patch_status("Machine", &group.machines[0], status).await?;
    eventually("the new Node's providerID", 2 * SOON, async || {
        provider.refresh().await?;
        let instances = provider.instances(&group.id).await?;
        ensure!(instances.iter().map(|it| &it.id).eq([&id]), "instances are {instances:?}");
        Ok(())
    })
    .await
}

/// Returns a token of the service account that is valid as long as a Secret of this name exists.
async fn token(world: &World, secret: &str) -> Result<String> {
    let bound = world.objects.create(json!({ "kind": "Secret", "metadata": { "name": secret } })).await?;
    let request = TokenRequest {
        spec: TokenRequestSpec {
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Secret".to_owned()),
                name: Some(secret.to_owned()),
                uid: bound.metadata.uid,
            }),
            ..TokenRequestSpec::default()
        },
        ..TokenRequest::default()
    };
    let service_accounts: Api<ServiceAccount> = Api::namespaced(world.plane.plain_client().await?, &world.namespace);
    let issued = service_accounts.create_token_request(ACCOUNT, &PostParams::default(), &request).await?;
    Ok(issued.status.context("no token was issued")?.token)
}

fn with_token(mut kubeconfig: Value, token: &str) -> Value {
    kubeconfig["users"][0]["user"] = json!({ "token": token });
    kubeconfig
}

async fn put_kubeconfig(world: &World, kubeconfig: &Value) -> Result<()> {
    let value = base64(kubeconfig.to_string().as_bytes());
    let name = format!("{}-kubeconfig", world.cluster);
    world.objects.patch("Secret", &name, json!({ "data": { "value": value } })).await
}
