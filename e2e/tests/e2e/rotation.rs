//! Credentials that are rotated during calls: no call fails because of it.

use std::{
    cell::Cell,
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use e2e::{
    audit::answered,
    objects::Contract,
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

/// The interval of reading a Secret, one minute in normal operation, with a margin.
const NEXT_LOOK: Duration = Duration::from_secs(90);
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
    let mut provider = world.spawn_bare(&[&cluster_flag(world)], &[])?;
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

/// A Secret that would run a program with this program's rights is refused, and the last valid one stays in force.
pub(crate) async fn a_secret_that_may_not_be_used_leaves_the_one_in_force(world: &World) -> Result<()> {
    let group = Pool::new("workers").running(2).create(world).await?;
    world.share_kubeconfig(&world.plane.kubeconfig(&world.user)).await?;
    let mut provider = world.spawn_bare(&[&cluster_flag(world)], &[])?;
    provider.ready().await?;
    provider.shows(&[&group.id]).await?;

    let ran = world.plane.directory().join(format!("{}-ran", world.namespace));
    let mut runs = world.plane.kubeconfig(&world.user);
    runs["users"][0]["user"] = json!({ "exec": {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "touch",
        "args": [ran],
        "interactiveMode": "Never",
    } });
    put_kubeconfig(world, &runs).await?;
    let calls = Cell::new(0);
    let refused = eventually("the word that it is refused", NEXT_LOOK, async || {
        let log = provider.process.output();
        ensure!(log.contains("the one in force stays") && log.contains("exec"), "the log says nothing of it");
        Ok(())
    });
    tokio::select! {
        refused = refused => refused?,
        failed = ask_for_ever(&provider, &group, &calls) => return failed,
    }
    ensure!(!ran.exists(), "the program that the Secret names was run");
    a_new_node_is_seen(world, &provider).await?;
    provider.ready().await
}

/// A kubeconfig file of the management cluster is replaced during writes of sizes: each is written once.
pub(crate) async fn sizes_are_written_while_the_kubeconfig_file_is_exchanged(world: &World) -> Result<()> {
    let group = Pool::new("workers").running(1).bounds(0, 100_000).create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&group.id]).await?;
    let next = world.neighbour().await?.user;
    let path = world.kubeconfig()?;
    let mut size = 1;
    for _ in 0..3 {
        provider.increase(&group.id, 1).await?;
        size += 1;
    }
    // By a rename, as writers of such files do it.
    let new = path.with_extension("new");
    fs::write(&new, world.plane.kubeconfig(&next).to_string())?;
    fs::rename(&new, &path)?;
    eventually("writes by the new user", SOON, async || {
        provider.increase(&group.id, 1).await.map_err(|status| e2e::wait::Permanent(status.to_string()))?;
        size += 1;
        let writes = answered(world, &next)?;
        ensure!(writes.iter().any(|it| it.resource == "machinedeployments/scale"), "it has written nothing");
        Ok(())
    })
    .await?;
    assert_eq!(provider.target_size(&group.id).await?, size);
    crate::sizes::assert_scale(world, &group, size).await
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
    let reference = match world.plane.contract {
        Contract::V1Beta1 => json!({ "apiVersion": "v1", "kind": "Node", "name": name }),
        Contract::V1Beta2 | Contract::MachineApi => json!({ "name": name }),
    };
    let status = json!({ "phase": "Running", "nodeRef": reference });
    world.objects.patch_status("Machine", &group.machines[0], status).await?;
    eventually("the new Node's providerID", 2 * SOON, async || {
        provider.refresh().await?;
        let instances = provider.instances(&group.id).await?;
        ensure!(instances.iter().map(|it| &it.id).eq([&id]), "instances are {instances:?}");
        Ok(())
    })
    .await
}

fn cluster_flag(world: &World) -> String {
    format!("--cluster={}/{}", world.namespace, world.cluster)
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
