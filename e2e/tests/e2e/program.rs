//! The program as a process: its services besides the provider's calls, and its end.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context, Result, ensure};
use e2e::{
    objects::INFRASTRUCTURE_GROUP,
    pool::Pool,
    provider::{Provider, ask, assert_refused, made_up_node},
    users::{self, User},
    wait::{SOON, eventually},
    world::World,
};
use http::Request;
use proto::NodeGroupIncreaseSizeRequest;
use serde::Deserialize;
use serde_json::Value;
use tonic::Code;
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
};

use crate::sizes::assert_scale;

/// The service that Cluster Autoscaler calls.
pub(crate) const SERVICE: &str = "clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider";

/// gRPC probes and tools need nothing else.
pub(crate) async fn health_and_reflection_answer(world: &World) -> Result<()> {
    let provider = world.serve().await?;
    assert_eq!(health(&provider, "").await?, ServingStatus::Serving);
    eventually("health of the service", SOON, async || {
        let health = health(&provider, SERVICE).await?;
        ensure!(health == ServingStatus::Serving, "it is {health:?}");
        Ok(())
    })
    .await?;

    let mut reflection = ServerReflectionClient::new(provider.channel());
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let requests = tokio_stream::once(request);
    let mut answers = reflection.server_reflection_info(ask(requests)).await?.into_inner();
    let answer = answers.message().await?.context("no answer")?;
    let Some(MessageResponse::ListServicesResponse(listed)) = answer.message_response else {
        anyhow::bail!("no list of services in {answer:?}");
    };
    let names: Vec<_> = listed.service.iter().map(|service| service.name.as_str()).collect();
    ensure!(names.contains(&SERVICE), "services are {names:?}");
    Ok(())
}

/// Liveness, readiness and metrics are there for people and for machines.
pub(crate) async fn pages_answer(world: &World) -> Result<()> {
    let group = Pool::new("workers").running(1).create(world).await?;
    let wrong = Pool::new("wrong").running(1).bounds(5, 3).create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&group.id]).await?;

    assert_eq!(provider.http("/livez").await?.0, 200);
    assert_eq!(provider.http("/readyz").await?.0, 200);
    let (status, body) = provider.http("/readyz?verbose").await?;
    assert_eq!(status, 200);
    for kind in ["machinedeployments", "machinesets", "machines", "nodes"] {
        ensure!(body.contains(kind), "/readyz?verbose does not name {kind}:\n{body}");
    }
    assert_eq!(provider.http("/no-such-page").await?.0, 404);

    let (status, metrics) = provider.http("/metrics").await?;
    assert_eq!(status, 200);
    for line in metrics.lines().filter(|line| !line.starts_with('#')) {
        let value = line.rsplit(' ').next().map(str::parse::<f64>);
        ensure!(matches!(value, Some(Ok(_))), "not a sample: {line}");
    }
    // The omitted group has a metric with its reason.
    let is_logged = |line: &str| line.contains(&wrong.id) && line.contains("problem") && line.ends_with(" 1");
    ensure!(metrics.lines().any(is_logged), "no metric reports the excluded group:\n{metrics}");
    Ok(())
}

/// Clusters in the middle of an upgrade need this: their preferred version is not the one to use.
pub(crate) async fn the_version_of_the_contract_can_be_fixed(world: &World) -> Result<()> {
    let group = Pool::new("workers").running(1).create(world).await?;
    let workload = format!("--workload-kubeconfig={}", world.kubeconfig()?.display());
    let flags = [world.scope(), workload];
    let flags = flags.each_ref().map(String::as_str);

    let served = [("CAPI_VERSION", world.plane.contract.as_str())];
    let mut provider = world.spawn_bare(&flags, &served)?;
    provider.ready().await?;
    provider.shows(&[&group.id]).await?;

    let mut provider = world.spawn_bare(&flags, &[("CAPI_VERSION", "v1alpha4")])?;
    eventually("a page that names the version", SOON, async || {
        provider.process.still_running()?;
        let (status, body) = provider.http("/readyz?verbose").await?;
        ensure!(status == 503 && body.contains("v1alpha4"), "/readyz answers {status}:\n{body}");
        Ok(())
    })
    .await
}

/// The program reports the missing rights, and continues by itself once they are granted.
pub(crate) async fn missing_rights_are_named_until_they_are_given(world: &World) -> Result<()> {
    let mut world = world.neighbour().await?;
    world.user = User::unprivileged();
    let group = Pool::new("workers").running(1).create(&world).await?;
    let mut provider = world.spawn(&[])?;
    eventually("a page that says what is forbidden", SOON, async || {
        provider.process.still_running()?;
        let (status, body) = provider.http("/readyz?verbose").await?;
        ensure!(status == 503 && body.contains("forbidden"), "/readyz answers {status}:\n{body}");
        for kind in ["machinedeployments", "machinesets", "machines", "clusters", "nodes"] {
            ensure!(body.contains(kind), "/readyz?verbose does not name {kind}:\n{body}");
        }
        Ok(())
    })
    .await?;
    assert_refused(provider.refresh().await, Code::Unavailable, &["machinedeployments", "nodes"])?;

    world.objects.create(users::bind_role(&world.user)).await?;
    provider.ready().await?;
    provider.shows(&[&group.id]).await
}

/// A container runtime ends it by SIGTERM.
pub(crate) async fn sigterm_ends_it_in_time_with_success(world: &World) -> Result<()> {
    let group = Pool::new("workers").running(1).create(world).await?;
    let mut provider = world.serve().await?;
    // The connection is open, as that of Cluster Autoscaler always is.
    provider.shows(&[&group.id]).await?;
    provider.process.terminate()?;
    let status = provider.process.ended(Duration::from_secs(10)).await?;
    ensure!(status.code() == Some(0), "it ended with {status}");
    Ok(())
}

/// A write that has begun is completed, and its caller answered, before the program ends.
pub(crate) async fn sigterm_during_a_write_ends_it_after_the_write(world: &World) -> Result<()> {
    let group = Pool::new("workers").running(1).create(world).await?;
    let proxy = world.plane.proxy().await?;
    let mut provider = world.serve_through(&proxy).await?;
    provider.shows(&[&group.id]).await?;

    proxy.hold_writes();
    let mut client = provider.client();
    let request = NodeGroupIncreaseSizeRequest { id: group.id.clone(), delta: 2 };
    let call = tokio::spawn(async move { client.node_group_increase_size(ask(request)).await });
    eventually("the size in /scale", SOON, async || assert_scale(world, &group, 3).await).await?;
    provider.process.terminate()?;
    eventually("the end is under way", SOON, async || {
        let (status, body) = provider.http("/readyz?verbose").await?;
        ensure!(status == 503 && body.contains("shutdown"), "/readyz answers {status}:\n{body}");
        Ok(())
    })
    .await?;
    ensure!(!call.is_finished(), "the write was answered before its answer came");
    provider.process.still_running()?;
    proxy.release_writes();
    call.await?.context("the increase")?;
    let status = provider.process.ended(Duration::from_secs(10)).await?;
    ensure!(status.code() == Some(0), "it ended with {status}");
    Ok(())
}

/// All reads of the caller are answered from memory. The API server's audit log has one line per request, in order.
pub(crate) async fn reads_make_no_api_call(world: &World) -> Result<()> {
    let group = Pool::new("workers").running(3).pending(1).sized().create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&group.id]).await?;

    let before = requests_until(world, "/e2e-before").await?;
    ensure!(before > 0, "the program's start is not in the audit log");
    for _ in 0..50 {
        read_everything(&provider, &group.id).await?;
    }
    let after = requests_until(world, "/e2e-after").await?;
    // The additional request marked the end of the first part.
    assert_eq!(after, before + 1, "requests of the program");
    Ok(())
}

/// Returns the gRPC health of a service, or of the whole program for an empty name.
pub(crate) async fn health(provider: &Provider, service: &str) -> Result<ServingStatus> {
    let request = HealthCheckRequest { service: service.to_owned() };
    let answer = HealthClient::new(provider.channel()).check(ask(request)).await?;
    Ok(answer.into_inner().status())
}

async fn read_everything(provider: &Provider, id: &str) -> Result<()> {
    provider.refresh().await?;
    provider.groups().await?;
    provider.target_size(id).await?;
    provider.template(id).await?;
    for instance in provider.instances(id).await? {
        provider.group_of(&made_up_node(&instance.id)).await?;
    }
    Ok(())
}

/// Requests a path as the program's user, and counts this user's earlier requests in the audit log. Watches are left
/// out, since the program restarts an ended watch without a call.
async fn requests_until(world: &World, path: &str) -> Result<usize> {
    let client = world.plane.client(&world.user).await?;
    // The path doesn't exist, but the request is still in the audit log.
    let request = Request::get(path).body(Vec::new())?;
    ensure!(client.request_text(request).await.is_err(), "{path} is there");

    let user = format!("\"username\":\"{}\"", world.user.name);
    let path = format!("\"requestURI\":\"{path}\"");
    eventually("the audit log's line", SOON, async || {
        let log = world.plane.audit_log()?;
        let mut count = 0;
        for line in log.lines().filter(|line| line.contains(&user)) {
            if line.contains(&path) {
                return Ok(count);
            }
            if !line.contains("\"verb\":\"watch\"") {
                count += 1;
            }
        }
        anyhow::bail!("no line yet with {path}")
    })
    .await
}

/// These scenarios give the program the rights of the example, plus the templates of a test server and the Secret of
/// one scenario.
pub(crate) async fn the_example_grants_what_it_is_run_with(world: &World) -> Result<()> {
    let mut example = BTreeSet::new();
    for document in serde_yaml::Deserializer::from_str(include_str!("../../../examples/rbac.yaml")) {
        example.extend(rights(&Value::deserialize(document)?));
    }
    let here: BTreeSet<Right> = e2e::users::rules(world.plane.contract).iter().flat_map(rights).collect();
    let is_of_all = |right: &Right| right.1 != "secrets" && right.0 != INFRASTRUCTURE_GROUP;
    let verbs_of_templates = |all: &BTreeSet<Right>| -> BTreeSet<String> {
        all.iter().filter(|right| right.0 == INFRASTRUCTURE_GROUP).map(|right| right.2.clone()).collect()
    };
    assert_eq!(verbs_of_templates(&here), verbs_of_templates(&example));
    let (here, example): (Vec<_>, Vec<_>) =
        (here.iter().filter(|it| is_of_all(it)).collect(), example.iter().filter(|it| is_of_all(it)).collect());
    ensure!(!example.is_empty(), "the example grants nothing");
    assert_eq!(here, example);
    Ok(())
}

/// API group, resource and verb.
type Right = (String, String, String);

fn rights(role: &Value) -> BTreeSet<Right> {
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(|text| text.as_str().map(str::to_owned)).collect()
    };
    let mut rights = BTreeSet::new();
    for rule in role["rules"].as_array().into_iter().flatten() {
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                for verb in texts(&rule["verbs"]) {
                    rights.insert((group.clone(), resource.clone(), verb));
                }
            }
        }
    }
    rights
}
