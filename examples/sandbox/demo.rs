//! Starts the sandbox and the program, shows the node groups and the scenario, and keeps serving.

use std::{
    collections::BTreeSet,
    io::Write,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use app::{App, Config, IndexConfig};
use connect::{ClusterRef, NodeAccess, Source, WorkloadSource};
use page::state::tables::{View, table};
use page::state::{CheckState, Selection, State};
use proto::{RefreshRequest, cloud_provider_client::CloudProviderClient};
use rules::{Rules, Scope, ScopeSpec};
use sandbox::{
    Contract, Sandbox, SandboxOptions, Settings, Times,
    api::{Resource, Selection as Everything},
    fleet::Fleet,
    read_manifests,
};
use serde_json::json;
use service::listen::Shutdown;

use super::{
    options::Options,
    program, scenario,
    waiting::{TICK, until},
};

/// The times of the sandbox: short, but long enough to be visible.
pub(crate) const TIMES: Times = Times {
    bootstrap: Duration::from_millis(100),
    provision: Duration::from_millis(300),
    join: Duration::from_millis(300),
    ready: Duration::from_millis(200),
    drain: Duration::from_millis(200),
    terminate: Duration::from_millis(300),
    slow_factor: 10,
};

/// The longest wait for templates.
const TEMPLATES_PATIENCE: Duration = Duration::from_secs(1);

/// The number of Machines of a group, unless it is given.
const MACHINES: usize = 10;
/// The max number of node groups in a table.
const MOST_ROWS: usize = 30;

/// Runs the demonstration, and then serves until shutdown. Without manifests in the options it loads those of
/// `node_groups`.
pub(crate) async fn run(
    options: &Options,
    node_groups: &Path,
    shutdown: &Shutdown,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    let began = Instant::now();
    let sandbox = start_sandbox(options, node_groups).await?;
    let stopping = shutdown.stopping();
    let done = if options.api_only {
        print_apis(&sandbox, out)?;
        print_start(&sandbox, out)?;
        stopping.cancelled().await;
        Ok(())
    } else {
        let server = App::start(config(&sandbox)?, shutdown.clone()).await?;
        let done = tokio::select! {
            done = show(options, &sandbox, &server, began, out) => done,
            () = stopping.cancelled() => Ok(()),
        };
        if done.is_ok() && !options.once {
            stopping.cancelled().await;
        }
        if !stopping.is_cancelled() {
            shutdown.request();
        }
        server.finish().await?;
        done
    };
    sandbox.stop().await;
    done
}

async fn start_sandbox(options: &Options, node_groups: &Path) -> anyhow::Result<Sandbox> {
    let default = [node_groups.to_owned()];
    let paths: &[PathBuf] = if options.manifests.is_empty() { &default } else { &options.manifests };
    let mut manifests = Vec::new();
    for path in paths {
        manifests.extend(read_manifests(path)?);
    }
    let fleet = (options.groups > 0).then(|| Fleet {
        groups: options.groups,
        machines: options.machines.unwrap_or(MACHINES),
        namespace: "team-a".to_owned(),
        cluster: "prod".to_owned(),
    });
    let options = SandboxOptions {
        settings: Settings { times: TIMES, ..Settings::default() },
        management: options.listen_management,
        workload: options.listen_workload,
        manifests,
        fleet,
        ..SandboxOptions::default()
    };
    Sandbox::start(options).await.context("can't start the sandbox")
}

/// Returns the flags by which the program reaches the sandbox: one Cluster by its Secret, several by both kubeconfigs.
fn flags(sandbox: &Sandbox) -> Vec<String> {
    let management = format!("--management-kubeconfig={}", sandbox.management_kubeconfig().display());
    if let [cluster] = &sandbox.clusters()[..] {
        return vec![management, format!("--cluster={cluster}")];
    }
    let workload = format!("--workload-kubeconfig={}", sandbox.workload_kubeconfig().display());
    vec![management, workload, "--all-clusters".to_owned()]
}

/// Returns the configuration of the [`flags`], with listeners on free ports.
fn config(sandbox: &Sandbox) -> anyhow::Result<Config> {
    let (workload, scope) = if let [cluster] = &sandbox.clusters()[..] {
        let cluster: ClusterRef = cluster.parse()?;
        let scope = Scope::Specs(vec![ScopeSpec::cluster(cluster.namespace(), cluster.name())]);
        (NodeAccess::default().of(&cluster), scope)
    } else {
        (WorkloadSource::Own(Source::File(sandbox.workload_kubeconfig())), Scope::All)
    };
    let management = Source::File(sandbox.management_kubeconfig());
    let index = IndexConfig { management, workload, ..IndexConfig::new(Rules::new(scope)) };
    Ok(Config::new(index).on_free_ports())
}

async fn show(
    options: &Options,
    sandbox: &Sandbox,
    server: &App,
    began: Instant,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    print_page(server, out)?;
    let mut client = CloudProviderClient::connect(format!("http://{}", server.grpc_address())).await?;
    until("the program is in sync", async || Ok(client.clone().refresh(RefreshRequest {}).await.ok())).await?;
    in_sync_with_templates(sandbox, server).await;
    // Cluster Autoscaler learns of groups that depend on templates at its next Refresh.
    client.refresh(RefreshRequest {}).await?;
    let took = began.elapsed();
    print_apis(sandbox, out)?;
    writeln!(out, "  gRPC                http://{}", server.grpc_address())?;
    writeln!(out, "\nReady in {} ms. The node groups, and what is none:\n", took.as_millis())?;
    print_groups(server, out)?;
    writeln!(out)?;
    if let Some(binary) = &options.autoscaler {
        return with_autoscaler(binary, options.once, sandbox, server, out).await;
    }
    scenario::run(&mut client, sandbox, out).await?;
    if !options.once {
        print_next(sandbox, server, out)?;
    }
    Ok(())
}

/// The CPU of a Pod: more than half of what a Node has.
const LARGE_POD: &str = "3";
/// One Pod more than there are Nodes.
const LARGE_PODS: usize = 4;

/// Runs a Cluster Autoscaler, and creates Pods for which there is no Node.
async fn with_autoscaler(
    binary: &Path,
    once: bool,
    sandbox: &Sandbox,
    server: &App,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    writeln!(out, "{LARGE_PODS} Pods ask for {LARGE_POD} CPUs each, with {} running:\n", binary.display())?;
    let provider = server.grpc_address().to_string();
    let mut live = whatif::Live::start(binary, sandbox, Contract::default(), &provider)?;
    let began = Instant::now();
    let pod = |number| {
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("large-{number}"), "namespace": "default"},
            "spec": {"containers": [{"name": "a", "image": "a", "resources": {"requests": {"cpu": LARGE_POD}}}]},
        })
    };
    let mut failed = None;
    let mut say = |what: &str| {
        let printed = writeln!(out, "  {:5.1} s  {what}", began.elapsed().as_secs_f64()).and_then(|()| out.flush());
        failed = failed.take().or(printed.err());
    };
    live.place((1..=LARGE_PODS).map(pod).collect(), &mut say).await?;
    if !once {
        say("all Pods have a Node; following until Ctrl-C");
        live.follow(&mut say).await?;
    }
    failed.map_or(Ok(()), |error| Err(error.into()))
}

/// Waits until the infrastructure templates are known too, but only for a short time. The program itself waits for none
/// of them, since an unreadable template affects only the groups that use it.
async fn in_sync_with_templates(sandbox: &Sandbox, server: &App) {
    let wanted = template_kinds(sandbox);
    let all_known = async {
        loop {
            let checks = shown(server).head.checks;
            let templates = checks.iter().filter(|check| check.name.starts_with("templates/")).count();
            if templates >= wanted && checks.iter().all(|check| check.state == CheckState::Ready) {
                return;
            }
            tokio::time::sleep(TICK).await;
        }
    };
    // Templates that are still missing are shown with the groups.
    let _ = tokio::time::timeout(TEMPLATES_PATIENCE, all_known).await;
}

/// Returns the state of the only workload cluster, without instances.
fn shown(server: &App) -> State {
    let selection = Selection { instances: false, group: None };
    server.state().only().map(|source| source.read(&selection)).unwrap_or_default()
}

/// Returns the number of kinds of infrastructure templates that the groups name.
fn template_kinds(sandbox: &Sandbox) -> usize {
    let kinds = ["machinedeployments", "machinesets", "machinepools"].into_iter().flat_map(|plural| {
        let resource = Resource::new("cluster.x-k8s.io", "v1beta2", plural);
        let objects = sandbox.management().api().list(&resource, &Everything::default()).unwrap_or_default();
        objects.into_iter().filter_map(|object| {
            let reference = object.pointer("/spec/template/spec/infrastructureRef")?;
            Some((reference["apiGroup"].to_string(), reference["kind"].as_str()?.to_owned()))
        })
    });
    kinds.collect::<BTreeSet<_>>().len()
}

/// Prints the address of the status page.
pub(crate) fn print_page(server: &App, out: &mut dyn Write) -> std::io::Result<()> {
    if let Some(admin) = server.admin_address() {
        writeln!(out, "Status page: http://{admin}/\n")?;
    }
    out.flush()
}

fn print_apis(sandbox: &Sandbox, out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(out, "A sandbox: two Kubernetes APIs in memory, with simulated Cluster API controllers.")?;
    let (management, workload) = (sandbox.management().address(), sandbox.workload().address());
    writeln!(out, "  management cluster  http://{management}   {}", sandbox.management_kubeconfig().display())?;
    writeln!(out, "  workload cluster    http://{workload}   {}", sandbox.workload_kubeconfig().display())
}

fn print_groups(server: &App, out: &mut dyn Write) -> std::io::Result<()> {
    let state = shown(server);
    if state.groups.len() > MOST_ROWS {
        let (groups, machines, nodes) = (state.groups.len(), state.machines, state.nodes);
        return writeln!(out, "{groups} node groups, {machines} Machines, {nodes} Nodes");
    }
    write!(out, "{}", table(&state, View { all: true, ..View::default() }))
}

/// Prints the command that starts the program on the sandbox.
fn print_start(sandbox: &Sandbox, out: &mut dyn Write) -> anyhow::Result<()> {
    let program = program::link(&sandbox.management_kubeconfig())?;
    writeln!(out, "\nServing the APIs until Ctrl-C. To start the program on them:")?;
    writeln!(out, "  {program} serve {}", flags(sandbox).join(" "))?;
    Ok(())
}

fn print_next(sandbox: &Sandbox, server: &App, out: &mut dyn Write) -> anyhow::Result<()> {
    let program = program::link(&sandbox.management_kubeconfig())?;
    let (management, workload) = (sandbox.management_kubeconfig(), sandbox.workload_kubeconfig());
    writeln!(out, "\nServing until Ctrl-C. To try next:")?;
    if let Some(admin) = server.admin_address() {
        writeln!(out, "  {program} groups --all --server http://{admin}")?;
    }
    writeln!(out, "  {program} explain {}", flags(sandbox).join(" "))?;
    let watch = format!("{program} watch --all-namespaces --management-kubeconfig");
    writeln!(out, "  {watch} {}    # while you scale with the next ones", management.display())?;
    writeln!(out, "  curl 'http://{}/readyz?verbose'", server.http_address())?;
    writeln!(out, "  kubectl --kubeconfig {} get clusters,md,ms,ma -A", management.display())?;
    writeln!(out, "  kubectl --kubeconfig {} scale -n team-a md/prod-workers --replicas=2", management.display())?;
    writeln!(out, "  kubectl --kubeconfig {} get nodes --watch", workload.display())?;
    let service = "clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider";
    writeln!(out, "  grpcurl -plaintext {} {service}/NodeGroups", server.grpc_address())?;
    writeln!(
        out,
        "  printf 'address: {}\\n' > cloud-config.yaml    # for Cluster Autoscaler itself",
        server.grpc_address()
    )?;
    Ok(())
}
