//! The function that needs each right, and that breaks without it. Each verb of each resource has one row, with the
//! names that `check` uses.

use anyhow::{Context as _, Result, ensure};
use e2e::{
    granted::Grant,
    pool::{Group, Pool, Scalable},
    provider::{assert_refused, made_up_node},
    wait::{SOON, eventually},
};
use serde_json::json;
use tonic::Code;

use super::{Release, TEMPLATES, is_of_templates, rpcs};

/// The function that breaks without a right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Breaks {
    FirstList,
    MachineList,
    Watches,
    WorkloadAccess,
    Sizes(Scalable),
    Repeats(Scalable),
    MachineReads,
    Marks,
    Deletions,
    Events,
    EventSeries,
    Templates,
    TemplateChanges,
    Memory,
    MemoryWrites,
}

impl Breaks {
    /// Returns the function that needs a right, or `None` if no test covers it.
    pub(super) fn of(grant: &Grant) -> Option<Self> {
        if is_of_templates(grant) {
            return match grant.verb.as_str() {
                "list" => Some(Self::Templates),
                "watch" => Some(Self::TemplateChanges),
                _ => None,
            };
        }
        let kind = match grant.resource.split('/').next() {
            Some("machinedeployments") => Some(Scalable::MachineDeployment),
            Some("machinesets") => Some(Scalable::MachineSet),
            Some("machinepools") => Some(Scalable::MachinePool),
            _ => None,
        };
        match (grant.resource.as_str(), grant.verb.as_str()) {
            ("machines", "list") => Some(Self::MachineList),
            ("clusters" | "machinedeployments" | "machinesets" | "machinepools" | "nodes", "list") => {
                Some(Self::FirstList)
            }
            ("clusters" | "machinedeployments" | "machinesets" | "machinepools" | "machines" | "nodes", "watch") => {
                Some(Self::Watches)
            }
            ("machinedeployments/scale" | "machinesets/scale" | "machinepools/scale", "patch") => kind.map(Self::Sizes),
            ("machinedeployments" | "machinesets" | "machinepools", "get") => kind.map(Self::Repeats),
            ("machines", "get") => Some(Self::MachineReads),
            ("machines", "patch") => Some(Self::Marks),
            ("machines", "delete") => Some(Self::Deletions),
            ("events", "create") => Some(Self::Events),
            ("events", "patch") => Some(Self::EventSeries),
            ("configmaps", "list" | "watch") if grant.name.is_some() => Some(Self::Memory),
            ("configmaps", "patch") if grant.name.is_some() => Some(Self::MemoryWrites),
            ("secrets", "get") if grant.name.is_some() => Some(Self::WorkloadAccess),
            _ => None,
        }
    }

    /// Returns the name that `check` uses.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::FirstList => "first_list",
            Self::MachineList => "machine_list",
            Self::Watches => "picture",
            Self::WorkloadAccess => "workload_access",
            Self::Sizes(_) => "sizes",
            Self::Repeats(_) => "repeats",
            Self::MachineReads => "machine_reads",
            Self::Marks => "marks",
            Self::Deletions => "deletions",
            Self::Events => "events",
            Self::EventSeries => "event_series",
            Self::Templates => "templates",
            Self::TemplateChanges => "template_changes",
            Self::Memory => "memory",
            Self::MemoryWrites => "memory_writes",
        }
    }

    /// Returns true if `check` only warns of it.
    pub(super) fn is_optional(self) -> bool {
        matches!(self, Self::Memory | Self::MemoryWrites)
    }

    /// Fails unless the function is broken.
    pub(super) async fn shows(self, release: &Release, grant: &Grant) -> Result<()> {
        let resource = grant.resource.as_str();
        match self {
            Self::FirstList => never_ready(release, &[], &[resource, "forbidden"]).await,
            Self::MachineList => {
                never_ready(release, &[], &[resource, "forbidden"]).await?;
                no_replica_is_given_up(release).await
            }
            Self::Watches => {
                let words = [resource, "forbidden", "--max-staleness"];
                never_ready(release, &["--max-staleness=1s"], &words).await
            }
            Self::WorkloadAccess => never_ready(release, &[], &["kubeconfig", "forbidden"]).await,
            Self::Sizes(kind) => no_size_is_written(release, kind).await,
            Self::Repeats(kind) => no_write_is_decided_anew(release, kind).await,
            Self::MachineReads => no_changed_machine_is_deleted(release).await,
            Self::Marks => no_machine_of_a_pool_is_marked(release).await,
            Self::Deletions => no_machine_is_deleted(release).await,
            Self::Events => no_event_is_there(release).await,
            Self::EventSeries => no_event_is_counted(release).await,
            Self::Templates => no_scaling_from_zero(release).await,
            Self::TemplateChanges => a_changed_template_is_not_seen(release).await,
            Self::Memory => nothing_is_known_of_former_nodes(release).await,
            Self::MemoryWrites => no_node_is_remembered(release).await,
        }
    }
}

/// Checks that a server that is started without the right refuses Refresh, with the reason.
async fn never_ready(release: &Release, flags: &[&str], words: &[&str]) -> Result<()> {
    let mut provider = release.another(flags)?;
    eventually("a refused Refresh", SOON, async || {
        provider.process.still_running()?;
        assert_refused(provider.refresh().await, Code::Unavailable, words)?;
        let (status, page) = provider.http("/readyz?verbose").await?;
        ensure!(status == 503, "/readyz answers {status}:\n{page}");
        Ok(())
    })
    .await
}

async fn no_replica_is_given_up(release: &Release) -> Result<()> {
    let group = release.group(Pool::new("given-up").running(1).missing(1)).await?;
    assert_refused(release.provider.decrease(&group.id, -1).await, Code::PermissionDenied, &["machines"])?;
    release.scale_is(&group, 2).await
}

/// Checks that neither a larger nor a smaller size is written, and that no Machine is deleted for one.
async fn no_size_is_written(release: &Release, kind: Scalable) -> Result<()> {
    let name = format!("sizes-{}", kind.kind().to_lowercase());
    let group = release.group(Pool::new(&name).of(kind).with_machines().running(2)).await?;
    assert_refused(release.provider.increase(&group.id, 1).await, Code::PermissionDenied, &["scale"])?;
    let refused = release.provider.delete(&group.id, &group.nodes[..1]).await;
    assert_refused(refused, Code::PermissionDenied, &["scale"])?;
    stays(release, &group).await
}

/// Checks that the first Machine of a group of two is neither deleted nor marked.
async fn stays(release: &Release, group: &Group) -> Result<()> {
    let machine = &group.machines[0];
    ensure!(!release.is_deleting(machine).await?, "{machine} is being deleted");
    let mark = release.world.objects.deletion_mark(machine).await?;
    ensure!(mark.is_none(), "{machine} is marked: {mark:?}");
    release.scale_is(group, 2).await
}

/// Checks that a write that conflicts with another one isn't repeated while the watch is behind.
async fn no_write_is_decided_anew(release: &Release, kind: Scalable) -> Result<()> {
    let name = format!("repeats-{}", kind.kind().to_lowercase());
    let group = release.group(Pool::new(&name).of(kind).running(1).missing(1)).await?;
    release.proxy.hold_watches();
    release.world.objects.patch(group.kind, &group.name, json!({ "spec": { "replicas": 3 } })).await?;
    assert_refused(release.provider.increase(&group.id, 1).await, Code::PermissionDenied, &["get"])?;
    release.proxy.release_watches();
    release.scale_is(&group, 3).await
}

/// Checks that a Machine stays whose DELETE fails since another write came before.
async fn no_changed_machine_is_deleted(release: &Release) -> Result<()> {
    let group = release.group(Pool::new("changed").running(2)).await?;
    release.proxy.hold_watches();
    let changed = json!({ "metadata": { "annotations": { "example.com/changed": "yes" } } });
    release.world.objects.patch("Machine", &group.machines[0], changed).await?;
    let refused = release.provider.delete(&group.id, &group.nodes[..1]).await;
    assert_refused(refused, Code::PermissionDenied, &["machines"])?;
    release.proxy.release_watches();
    stays(release, &group).await?;
    no_machine_is_replaced(release, "replaced-changed").await
}

async fn no_machine_of_a_pool_is_marked(release: &Release) -> Result<()> {
    let group = release.group(Pool::new("marks").of(Scalable::MachinePool).with_machines().running(2)).await?;
    let refused = release.provider.delete(&group.id, &group.nodes[..1]).await;
    assert_refused(refused, Code::PermissionDenied, &["machines"])?;
    stays(release, &group).await
}

async fn no_machine_is_deleted(release: &Release) -> Result<()> {
    let group = release.group(Pool::new("deletions").running(2)).await?;
    let refused = release.provider.delete(&group.id, &group.nodes[..1]).await;
    assert_refused(refused, Code::PermissionDenied, &["machines"])?;
    stays(release, &group).await?;
    no_machine_is_replaced(release, "replaced-deletions").await
}

/// Checks that a Machine that never became a Node isn't replaced at the min size.
async fn no_machine_is_replaced(release: &Release, name: &str) -> Result<()> {
    let group = release.group(Pool::new(name).pending(1).bounds(1, 5)).await?;
    let machine = &group.machines[0];
    let node = made_up_node(&format!("pending-machine-{}_{machine}", release.world.namespace));
    assert_refused(release.provider.delete(&group.id, &[node]).await, Code::PermissionDenied, &["machines"])?;
    ensure!(!release.is_deleting(machine).await?, "{machine} is being deleted");
    release.scale_is(&group, 1).await
}

/// Uses a separate server, since a server posts no Event for a while after a refusal.
async fn no_event_is_there(release: &Release) -> Result<()> {
    let group = release.group(Pool::new("events").running(1)).await?;
    let mut provider = release.another(&[])?;
    provider.ready().await?;
    provider.increase(&group.id, 1).await?;
    release.scale_is(&group, 2).await?;
    eventually("an Event counted as failed", SOON, async || {
        let (_, page) = provider.http("/metrics").await?;
        let is_failed = |line: &&str| line.contains("_events_total{") && line.contains("\"failed\"");
        let line = page.lines().find(is_failed).context("no such metric")?;
        ensure!(!line.ends_with(" 0"), "{line}");
        Ok(())
    })
    .await?;
    let events = rpcs::events_of(release, &group).await?;
    ensure!(events.is_empty(), "there are Events: {events:#?}");
    Ok(())
}

async fn no_event_is_counted(release: &Release) -> Result<()> {
    let group = release.group(Pool::new("series").running(1)).await?;
    let mut provider = release.another(&[])?;
    provider.ready().await?;
    let event = rpcs::refused_twice(release, &mut provider, &group).await?;
    ensure!(event.data["series"].is_null(), "the Event was counted: {event:#?}");
    Ok(())
}

async fn no_scaling_from_zero(release: &Release) -> Result<()> {
    let id = release.shows("MachineDeployment", "empty").await?;
    let mut provider = release.another(&[])?;
    provider.ready().await?;
    says_forbidden(&provider, "list").await?;
    let ids = provider.refreshed_ids().await?;
    ensure!(!ids.is_empty() && !ids.contains(&id), "groups are {ids:?}");
    Ok(())
}

/// Uses a separate server: one that has read the ConfigMap knows it.
async fn nothing_is_known_of_former_nodes(release: &Release) -> Result<()> {
    let mut provider = release.another(&[])?;
    provider.ready().await?;
    eventually("a ConfigMap that is forbidden", SOON, async || {
        let said = provider.process.output();
        let line = said.lines().find(|line| line.contains("configmaps") && line.contains("forbidden"));
        line.context("the server doesn't say it").map(drop)
    })
    .await
}

async fn no_node_is_remembered(release: &Release) -> Result<()> {
    let group = release.group(Pool::new("memory").template("DevMachineTemplate", "big").running(1)).await?;
    let amounts = json!({ "cpu": "7", "memory": "30Gi" });
    let ready = json!([{ "type": "Ready", "status": "True" }]);
    let status = json!({ "capacity": amounts, "allocatable": amounts, "conditions": ready });
    release.world.objects.patch_status("Node", &group.nodes[0].name, status).await?;
    eventually("a write that is forbidden", SOON, async || {
        let (_, page) = release.provider.http("/readyz?verbose").await?;
        let is_said = |line: &str| line.contains("remembered/") && line.contains("forbidden");
        ensure!(page.lines().any(is_said), "{page}");
        Ok(())
    })
    .await
}

async fn a_changed_template_is_not_seen(release: &Release) -> Result<()> {
    let id = release.shows("MachineDeployment", "empty").await?;
    let mut provider = release.another(&[])?;
    provider.ready().await?;
    eventually("the group that lives by its template", SOON, async || {
        let ids = provider.refreshed_ids().await?;
        ensure!(ids.contains(&id), "groups are {ids:?}");
        Ok(())
    })
    .await?;
    says_forbidden(&provider, "watch").await?;
    let before = provider.template(&id).await?;
    let status = json!({ "capacity": { "cpu": "16", "memory": "64Gi" } });
    release.world.objects.patch_status("DevMachineTemplate", "big", status).await?;
    // The server that began its watch while it had the right sees the change.
    eventually("the changed template", SOON, async || {
        let now = release.provider.template(&id).await?;
        ensure!(now.node_bytes != before.node_bytes, "it is as it was");
        Ok(())
    })
    .await?;
    ensure!(provider.template(&id).await?.node_bytes == before.node_bytes, "the change was seen");
    Ok(())
}

/// Waits until a server reports that it may not read templates.
async fn says_forbidden(provider: &e2e::provider::Provider, verb: &str) -> Result<()> {
    eventually("a template that is forbidden", SOON, async || {
        let said = provider.process.output();
        let line = said.lines().find(|line| {
            line.contains(TEMPLATES) && line.contains("forbidden") && line.contains(&format!("{verb} failed"))
        });
        line.context("the server doesn't say it")?;
        Ok(())
    })
    .await
}
