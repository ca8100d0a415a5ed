//! The rights that the chart grants, on a real API server and with the release's own ServiceAccount: with all of them
//! everything works; without one of them `check` names exactly that one, and the announced breakage occurs. A right
//! without a row fails the test.

mod breaks;
mod rpcs;

use std::{
    path::PathBuf,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use e2e::{
    control_plane::ControlPlane,
    crds::Installed as Kinds,
    go,
    granted::{Grant, Granted},
    helm::{Helm, Values},
    installed::{Installed, Prepared},
    objects::{Contract, INFRASTRUCTURE_GROUP},
    pool::{Group, Pool, Scalable},
    process::tail,
    program::{self, Programs},
    provider::Provider,
    proxy::Proxy,
    users::{self, User},
    wait::{SOON, eventually},
    world::World,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::{Handle, Runtime};

use self::breaks::Breaks;

const PRICES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/prices.yaml");
/// Groups of templates that no node group here names: only kinds that they name are read.
const NOT_NAMED: [&str; 2] = ["vmware.infrastructure.cluster.x-k8s.io", "bootstrap.cluster.x-k8s.io"];
/// The kind of infrastructure template that the node groups here name.
const TEMPLATES: &str = "devmachinetemplates";
/// The maximum time for `check`, which doesn't wait for refused requests.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The number of parts into which the rows of a mode are divided, each with a release of its own.
const PARTS: usize = 3;

/// The scope of the release's rights.
#[derive(Clone, Copy, Debug)]
enum Mode {
    /// Roles in the namespace; the workload cluster is reached with the Secret that Cluster API keeps.
    Namespaced,
    /// ClusterRoles; the cluster manages itself.
    ClusterWide,
}

impl Mode {
    fn values(self, world: &World) -> Values {
        let values = json!({ "autoDiscovery": { "clusterName": world.cluster }, "extraArgs": { "prices": PRICES } });
        let values = Values::new(&world.namespace, values).set("rbac.markMachines", json!(true));
        match self {
            Self::Namespaced => values.set("clusterAPIMode", json!("kubeconfig-incluster")),
            Self::ClusterWide => {
                let values = values.set("clusterAPIMode", json!("incluster-incluster"));
                values.set("rbac.clusterScoped", json!(true))
            }
        }
    }
}

/// A release in a namespace of its own, and a server that was started while it had all rights.
struct Release {
    world: World,
    granted: Granted,
    prepared: Prepared,
    programs: Programs,
    proxy: Proxy,
    provider: Provider,
    _directory: TempDir,
}

/// Releases share one API server, which doesn't stream lists: with streaming, the right to watch is enough to read.
#[test]
fn each_right_is_needed_and_check_says_what_breaks_without_it() -> Result<()> {
    let (components, program) = (Arc::new(go::components()?), program::build()?);
    drop(go::helm()?);
    let runtime = Runtime::new()?;
    let started = ControlPlane::start_without_streamed_lists(components, Contract::V1Beta2, Kinds::All);
    let plane = Arc::new(runtime.block_on(started)?);
    let wrong: Vec<String> = thread::scope(|scope| {
        let parts: Vec<_> = [Mode::Namespaced, Mode::ClusterWide]
            .into_iter()
            .flat_map(|mode| (0..PARTS).map(move |part| (mode, part)))
            .map(|(mode, part)| {
                let (plane, program, handle) = (Arc::clone(&plane), program.clone(), runtime.handle().clone());
                scope.spawn(move || run_part(&handle, plane, program, (mode, part)))
            })
            .collect();
        parts.into_iter().flat_map(|part| part.join().expect("a part of the rows panicked")).collect()
    });
    ensure!(wrong.is_empty(), "{} rows are wrong:\n{}", wrong.len(), wrong.join("\n"));
    Ok(())
}

/// Runs the rows of one part sequentially, and returns the failures.
fn run_part(handle: &Handle, plane: Arc<ControlPlane>, program: PathBuf, (mode, part): (Mode, usize)) -> Vec<String> {
    let said = |what: String, error: anyhow::Error| format!("{mode:?}, {what}: {error:#}");
    handle.block_on(async {
        let mut release = match Release::install(plane, program, mode).await {
            Ok(release) => release,
            Err(error) => return vec![said(format!("part {part}"), error)],
        };
        let grants = match release.granted.all().await {
            Ok(grants) => grants.into_iter().filter(|grant| !NOT_NAMED.contains(&&*grant.group)).collect::<Vec<_>>(),
            Err(error) => return vec![said("its rights".to_owned(), error)],
        };
        let mut wrong = Vec::new();
        if part == 0 {
            let everything = release.with_all_rights(&grants).await;
            wrong.extend(everything.err().map(|error| said("with all rights".to_owned(), error)));
        }
        for grant in grants.iter().skip(part).step_by(PARTS) {
            let row = release.without(grant).await;
            wrong.extend(row.err().map(|error| {
                let wrong = said(format!("without {} {}", grant.verb, grant.resource), error);
                format!("{wrong}\n--- the server wrote, at the end:\n{}", tail(release.provider.process.log()))
            }));
        }
        if part == 0 {
            let counted = rpcs::repeated_events_are_counted(&mut release).await;
            wrong.extend(counted.err().map(|error| said("Events".to_owned(), error)));
        }
        wrong
    })
}

/// Returns the resource on which a right is tested.
fn tried_on(grant: &Grant) -> &str {
    if grant.resource == "*" { TEMPLATES } else { &grant.resource }
}

/// Returns the right as `check` prints it.
fn printed(grant: &Grant) -> Value {
    let resource = tried_on(grant);
    let (resource, subresource) = resource.split_once('/').map_or((resource, None), |(it, part)| (it, Some(part)));
    json!({
        "cluster": if resource == "nodes" { "workload" } else { "management" },
        "verb": grant.verb,
        "group": grant.group,
        "resource": resource,
        "subresource": subresource,
        "namespace": grant.namespace(),
        "name": grant.name,
    })
}

/// Returns a right as `check` printed it, without its breakage.
fn asked(finding: &Value) -> Value {
    let right = &finding["right"];
    let parts = ["cluster", "verb", "group", "resource", "subresource", "namespace", "name"];
    parts.into_iter().map(|part| (part.to_owned(), right[part].clone())).collect::<serde_json::Map<_, _>>().into()
}

/// Returns the findings of `check` about rights that it could query.
fn rights(report: &Value) -> Vec<&Value> {
    report["checks"].as_array().into_iter().flatten().filter(|finding| finding["right"].is_object()).collect()
}

impl Release {
    async fn install(plane: Arc<ControlPlane>, program: PathBuf, mode: Mode) -> Result<Self> {
        let world = World::new(Arc::clone(&plane), program.clone()).await?;
        let administrator = plane.kubeconfig(&User::administrator());
        Helm::on(&administrator)?.apply("install", &mode.values(&world))?;
        world.objects.create(users::kubeconfig_secret(&world.cluster, &administrator.to_string())).await?;
        let installed = Installed::read(&plane, &world.namespace).await?;
        let own = installed.kubeconfig(&plane).await?;
        let granted = Granted::of(&world.objects, &world.namespace, &own).await?;
        let proxy = plane.proxy().await?;
        let mut through = own;
        through["clusters"][0]["cluster"]["server"] = json!(proxy.server());
        let directory = tempfile::tempdir()?;
        let prepared = installed.prepare(directory.path(), &through).await?;
        let programs = Programs::new(program, directory.path().to_owned());
        every_kind_of_group(&world).await?;
        let mut provider = prepared.serve(&programs, &[])?;
        provider.ready().await.with_context(|| programs.log_tails())?;
        let release = Self { world, granted, prepared, programs, proxy, provider, _directory: directory };
        release.shows("MachineDeployment", "empty").await?;
        Ok(release)
    }

    /// Checks that all RPCs work, and that `check` queries exactly the granted rights.
    async fn with_all_rights(&mut self, grants: &[Grant]) -> Result<()> {
        let (code, report) = self.check()?;
        ensure!(code == Some(0) && report["ok"] == true, "check ends with {code:?}: {report:#}");
        let mut granted: Vec<_> = grants.iter().map(|grant| printed(grant).to_string()).collect();
        let of_release = |finding: &&Value| {
            // With the kubeconfig of the Secret, the release doesn't grant rights on the workload cluster.
            let in_cluster = grants.iter().any(|grant| grant.resource == "nodes");
            in_cluster || finding["right"]["cluster"] != "workload"
        };
        let findings = rights(&report);
        let mut asked: Vec<_> = findings.into_iter().filter(of_release).map(|it| asked(it).to_string()).collect();
        granted.sort();
        asked.sort();
        ensure!(granted == asked, "granted:\n{}\nasked for:\n{}", granted.join("\n"), asked.join("\n"));
        rpcs::all_work(self).await
    }

    /// Checks the effect of removing one right.
    async fn without(&mut self, grant: &Grant) -> Result<()> {
        let breaks = Breaks::of(grant).context("it is granted, and no test needs it")?;
        let resource = tried_on(grant);
        let before = self.granted.revoke(grant, resource).await?;
        let row = async {
            self.check_names(grant, breaks)?;
            breaks.shows(self, grant).await.with_context(|| format!("{} doesn't break", breaks.word()))
        };
        let row = row.await;
        self.proxy.release_watches();
        self.granted.restore(grant, resource, before).await?;
        row
    }

    fn check(&self) -> Result<(Option<i32>, Value)> {
        let begun = Instant::now();
        let checked = self.prepared.check(&self.programs, &[&format!("--timeout={}s", TIMEOUT.as_secs())])?;
        ensure!(begun.elapsed() < TIMEOUT, "check waited for what doesn't come");
        Ok(checked)
    }

    /// Fails unless `check` reports this right as missing, and no other.
    fn check_names(&self, grant: &Grant, breaks: Breaks) -> Result<()> {
        let (word, (code, report)) = (breaks.word(), self.check()?);
        ensure!(code == Some(i32::from(!breaks.is_optional())), "check ends with {code:?}");
        let missing: Vec<_> = rights(&report).into_iter().filter(|finding| finding["status"] != "ok").collect();
        let named = missing.iter().map(|finding| asked(finding)).collect::<Vec<_>>();
        ensure!(named == [printed(grant)], "check names {missing:#?}");
        ensure!(missing[0]["right"]["breaks"] == word, "check says that {} breaks", missing[0]["right"]["breaks"]);
        let message = missing[0]["message"].as_str().unwrap_or_default();
        ensure!(message.contains("denied"), "check says {message}");
        Ok(())
    }

    /// Starts another server of the release with additional flags.
    fn another(&self, more: &[&str]) -> Result<Provider> {
        self.prepared.serve(&self.programs, more)
    }

    /// Creates a node group, and waits until the server knows all of it.
    async fn group(&self, pool: Pool) -> Result<Group> {
        let group = pool.create(&self.world).await?;
        self.shows(group.kind, &group.name).await?;
        let whole = group.machines.len().max(group.nodes.len());
        eventually(&format!("the instances of {}", group.id), SOON, async || {
            let instances = self.provider.instances(&group.id).await?;
            let there = instances.iter().filter(|instance| !instance.id.contains("replica-")).count();
            ensure!(there == whole, "{instances:?}");
            Ok(())
        })
        .await?;
        Ok(group)
    }

    /// Waits until the server lists a node group, and returns its id.
    async fn shows(&self, kind: &str, name: &str) -> Result<String> {
        let id = format!("{kind}/{}/{name}", self.world.namespace);
        eventually(&format!("node group {id}"), SOON, async || {
            let ids = self.provider.refreshed_ids().await?;
            ensure!(ids.contains(&id), "groups are {ids:?}");
            Ok(())
        })
        .await?;
        Ok(id)
    }

    async fn scale_is(&self, group: &Group, size: i32) -> Result<()> {
        let is = self.world.objects.scale(group.kind, &group.name).await?;
        ensure!(is == size, "the size of {} is {is}, not {size}", group.id);
        Ok(())
    }

    async fn is_deleting(&self, machine: &str) -> Result<bool> {
        Ok(self.world.objects.get("Machine", machine).await?.metadata.deletion_timestamp.is_some())
    }
}

/// Creates the initial objects of each namespace: all kinds of node groups, one of which can only scale from zero by
/// its template.
async fn every_kind_of_group(world: &World) -> Result<()> {
    Pool::new("deployment").running(1).create(world).await?;
    Pool::new("set").of(Scalable::MachineSet).running(1).create(world).await?;
    Pool::new("pool").of(Scalable::MachinePool).with_machines().running(1).create(world).await?;
    let template = json!({
        "kind": "DevMachineTemplate",
        "metadata": { "name": "big" },
        "spec": {},
        "status": { "capacity": { "cpu": "8", "memory": "32Gi" } },
    });
    world.objects.create(template).await?;
    Pool::new("empty").template("DevMachineTemplate", "big").create(world).await?;
    Ok(())
}

/// Returns true for a right to an infrastructure template.
fn is_of_templates(grant: &Grant) -> bool {
    grant.group == INFRASTRUCTURE_GROUP
}
