//! The demonstration of a fleet: one management API, a workload API for each Cluster, the program, and the autoscalers
//! of all Clusters. Some workload APIs may be ill; what belongs to one Cluster must never be seen by another.

use std::{
    fs,
    io::{self, BufRead as _, BufReader, Write},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow, bail, ensure};
use app::{App, Config, FleetConfig, IndexConfig};
use connect::{NodeAccess, Source};
use index::GroupSeries;
use proto::{NodeGroupIncreaseSizeRequest, NodeGroupTargetSizeRequest, RefreshRequest};
use rules::{Rules, Scope};
use sandbox::{
    Settings,
    api::{PatchKind, Resource, Subresource},
    clock::Clock,
    clusters::{Ailment, ClusterOf, Clusters, ClustersOptions},
};
use serde_json::json;
use service::listen::{AllowedClients, ClientFiles, GrpcAddress, Shutdown, TlsFiles};
use tokio::sync::mpsc;
use tonic::Code;

use super::{
    callers::{self, PLAN, Plan, Report},
    certificates::{Authority, FILES, HOST, TRUST_DOMAIN},
    demo::{TIMES, print_page},
    options::Options,
    program,
    waiting::until,
};

/// The number of Machines of a Cluster, unless it is given.
const MACHINES: usize = 6;
/// The label of the Clusters to serve.
const LABEL: (&str, &str) = ("autoscaler", "fleet");
/// The longest time until all autoscalers are served.
const PATIENCE: Duration = Duration::from_secs(300);
/// The maximum number of Nodes by which a Cluster grows.
const MORE: usize = 2;
/// The percentage of workload clusters that fail in the command that shows them.
const ILL: u8 = 30;

/// Returns the command that starts the process of the autoscalers whose plan is in a folder: this program again.
fn callers_process(folder: &Path) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--callers").arg(folder).stdin(Stdio::piped()).stdout(Stdio::piped());
    Ok(command)
}

/// A demonstration with many Clusters.
pub(crate) struct Demonstration<'a> {
    options: &'a Options,
    clusters: usize,
    machines: usize,
}

/// The running autoscalers, which end when this is dropped.
struct Playing {
    reports: mpsc::UnboundedReceiver<Report>,
    process: Child,
}

impl Drop for Playing {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl<'a> Demonstration<'a> {
    pub(crate) fn new(options: &'a Options, clusters: usize) -> Self {
        Self { options, clusters, machines: options.machines.unwrap_or(MACHINES) }
    }

    /// Runs the demonstration, and then serves until shutdown.
    pub(crate) async fn run(&self, shutdown: &Shutdown, out: &mut (dyn Write + Send)) -> anyhow::Result<()> {
        let began = Instant::now();
        let options = ClustersOptions {
            settings: Settings { times: TIMES, ..Settings::default() },
            clock: Clock::real(),
            management: self.options.listen_management,
            clusters: self.clusters,
            machines: self.machines,
            label: (LABEL.0.to_owned(), LABEL.1.to_owned()),
            controllers: true,
        };
        let clusters = Clusters::start(options).await.context("can't start the sandbox")?;
        let done = self.serve(&clusters, began, shutdown, out).await;
        clusters.stop().await;
        done
    }

    async fn serve(
        &self,
        clusters: &Clusters,
        began: Instant,
        shutdown: &Shutdown,
        out: &mut (dyn Write + Send),
    ) -> anyhow::Result<()> {
        let stopping = shutdown.stopping();
        let ailing = self.ail(clusters)?;
        let authority = Authority::new()?;
        authority.write_server(clusters.folder())?;
        if self.options.api_only {
            self.print_apis(clusters, &ailing, out)?;
            let program = program::link(&clusters.management_kubeconfig())?;
            writeln!(out, "\nServing the APIs until Ctrl-C. To start the program on them:")?;
            writeln!(out, "  {program} serve {}", flags(clusters).join(" "))?;
            stopping.cancelled().await;
            return Ok(());
        }
        let server = App::start(config(clusters)?, shutdown.clone()).await?;
        let done = tokio::select! {
            done = self.show(clusters, &ailing, (&server, &authority), began, out) => done,
            () = stopping.cancelled() => Ok(()),
        };
        if !stopping.is_cancelled() {
            shutdown.request();
        }
        server.finish().await?;
        done
    }

    /// Makes the APIs of some workload clusters ill, and returns the ailment of each Cluster.
    fn ail(&self, clusters: &Clusters) -> anyhow::Result<Vec<Option<Ailment>>> {
        let all = clusters.clusters();
        let before = |number: usize| number * usize::from(self.options.ill) / 100;
        let mut ailments = Ailment::ALL.into_iter().cycle();
        let mut ailing = Vec::with_capacity(all.len());
        for (number, cluster) in all.iter().enumerate() {
            let ailment = if before(number + 1) > before(number) { ailments.next() } else { None };
            if let Some(ailment) = ailment {
                clusters.ail(cluster, ailment, &all[0])?;
            }
            ailing.push(ailment);
        }
        Ok(ailing)
    }

    /// Shows all of it, and checks reports until shutdown, unless it shall end.
    async fn show(
        &self,
        clusters: &Clusters,
        ailing: &[Option<Ailment>],
        (server, authority): (&App, &Authority),
        began: Instant,
        out: &mut (dyn Write + Send),
    ) -> anyhow::Result<()> {
        print_page(server, out)?;
        self.print_apis(clusters, ailing, out)?;
        let GrpcAddress::Tcp(address) = server.grpc_address().clone() else { bail!("a fleet is served on TCP") };
        writeln!(out, "  gRPC                https://{address}")?;
        let plan = plan(clusters, authority, address)?;
        let mut playing = play(&plan, clusters)?;
        let what = "autoscalers with a certificate each, in a process of their own, make their loops";
        writeln!(out, "\n{} {what}:\n", self.clusters)?;
        let cannot = |ailment: &&Option<Ailment>| matches!(ailment, Some(Ailment::Dead | Ailment::Silent));
        let expected = self.clusters - ailing.iter().filter(cannot).count();
        loop {
            let report = next(&mut playing).await?;
            let Report { served, groups, instances, calls, median, p99, .. } = report;
            writeln!(
                out,
                "  {:5.1} s  {served} served, with {groups} groups and {instances} Machines; {calls} calls, median \
                 {median} µs, p99 {p99} µs",
                began.elapsed().as_secs_f64()
            )?;
            out.flush()?;
            if served >= expected {
                break;
            }
            ensure!(began.elapsed() < PATIENCE, "only {served} of {expected} autoscalers are served");
        }
        let watches = clusters.management().requests().count(|request| request.verb == "watch");
        writeln!(out, "\n{watches} watches of the management cluster were opened for all of them.\n")?;
        let well: Vec<_> = (0..self.clusters).filter(|number| ailing[*number].is_none()).collect();
        scale(clusters, &plan, well[0], out).await?;
        if let [first, second, ..] = well[..] {
            ask_for_others(clusters, &plan, (first, second), out).await?;
            opt_out(clusters, &plan, (second, first), out).await?;
        }
        let report = next(&mut playing).await?;
        writeln!(out, "\nNo autoscaler has seen anything of another Cluster; {} are served.", report.served)?;
        if self.options.once {
            return Ok(());
        }
        self.print_next(clusters, &plan, server, out)?;
        loop {
            next(&mut playing).await?;
        }
    }

    fn print_apis(&self, clusters: &Clusters, ailing: &[Option<Ailment>], out: &mut dyn Write) -> anyhow::Result<()> {
        let Self { clusters: count, machines, .. } = self;
        writeln!(out, "A sandbox: the APIs of a management cluster and of {count} workload clusters, in memory.")?;
        let management = clusters.management();
        let kubeconfig = clusters.management_kubeconfig();
        writeln!(out, "  management cluster  http://{}   {}", management.address(), kubeconfig.display())?;
        let workload = clusters.clusters()[0].workload.url();
        writeln!(out, "  workload clusters   {workload} and so on, with {machines} Nodes each")?;
        for ailment in Ailment::ALL {
            let count = ailing.iter().flatten().filter(|one| **one == ailment).count();
            if count > 0 {
                let of = match ailment {
                    Ailment::Dead => "are dead: they cut connections",
                    Ailment::Silent => "never answer",
                    Ailment::Slow => "are slow",
                    Ailment::Hostile => "are hostile: their Nodes claim to be another Cluster's",
                };
                writeln!(out, "                      {count} of them {of}")?;
            }
        }
        Ok(())
    }

    fn print_next(&self, clusters: &Clusters, plan: &Plan, server: &App, out: &mut dyn Write) -> anyhow::Result<()> {
        let (kubeconfig, folder) = (clusters.management_kubeconfig(), clusters.folder().display());
        let kubectl = format!("kubectl --kubeconfig {}", kubeconfig.display());
        let cluster = &clusters.clusters()[0];
        let (namespace, name, provider) = (&cluster.namespace, &cluster.name, plan.provider);
        writeln!(out, "\nServing until Ctrl-C. To try next:")?;
        print_commands(clusters, cluster, server, out)?;
        writeln!(out, "  {kubectl} get clusters -A --show-labels")?;
        writeln!(out, "  {kubectl} label cluster -n {namespace} {name} {}-    # it opts out", LABEL.0)?;
        writeln!(out, "  {kubectl} scale -n {namespace} md/{name}-group-0000 --replicas=8")?;
        writeln!(out, "  curl 'http://{}/readyz?verbose'", server.http_address())?;
        writeln!(out, "  curl http://{}/metrics", server.http_address())?;
        let service = "clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider";
        let files = format!("-cacert {folder}/{} -cert {folder}/c0.crt -key {folder}/c0.key", FILES[2]);
        writeln!(
            out,
            "  grpcurl {files} {provider} {service}/NodeGroups    # as the autoscaler of {}",
            cluster.text()
        )?;
        let files =
            format!("cacert: {folder}/{}\\ncert: {folder}/c0.crt\\nkey: {folder}/c0.key\\ngrpc_timeout: 30s", FILES[2]);
        writeln!(
            out,
            "  printf 'address: {provider}\\n{files}\\n' > cloud-config.yaml    # for Cluster Autoscaler itself"
        )?;
        if self.options.ill == 0 {
            let again = format!("--clusters {} --machines {} --ill {ILL}", self.clusters, self.machines);
            let this = std::env::current_exe()?;
            writeln!(out, "  {} {again}    # anew, with workload clusters that fail", this.display())?;
        }
        Ok(())
    }
}

/// Starts the autoscalers.
fn play(plan: &Plan, clusters: &Clusters) -> anyhow::Result<Playing> {
    let (sender, reports) = mpsc::unbounded_channel();
    fs::write(clusters.folder().join(PLAN), serde_json::to_vec(plan)?)?;
    let mut process = callers_process(clusters.folder())?.spawn()?;
    let output = process.stdout.take().context("it has no output")?;
    std::thread::spawn(move || {
        let lines = BufReader::new(output).lines().map_while(Result::ok);
        for report in lines.filter_map(|line| serde_json::from_str(&line).ok()) {
            if sender.send(report).is_err() {
                return;
            }
        }
    });
    Ok(Playing { reports, process })
}

/// Returns the next report. Fails if an autoscaler has seen anything of another Cluster.
async fn next(playing: &mut Playing) -> anyhow::Result<Report> {
    let report = playing.reports.recv().await.context("the autoscalers have ended")?;
    ensure!(report.crossed == 0, "{} answers named something of another Cluster", report.crossed);
    Ok(report)
}

/// Returns the flags by which the program serves the fleet.
fn flags(clusters: &Clusters) -> Vec<String> {
    let management = format!("--management-kubeconfig={}", clusters.management_kubeconfig().display());
    let mut flags = vec![
        management,
        format!("--fleet-selector={}={}", LABEL.0, LABEL.1),
        format!("--fleet-trust-domain={TRUST_DOMAIN}"),
    ];
    for (flag, file) in ["cert", "key", "client-ca"].iter().zip(FILES) {
        flags.push(format!("--tls-{flag}-file={}", clusters.folder().join(file).display()));
    }
    flags
}

/// Returns the configuration of the [`flags`], with listeners on free ports.
fn config(clusters: &Clusters) -> anyhow::Result<Config> {
    let management = Source::File(clusters.management_kubeconfig());
    let index = IndexConfig { management, ..IndexConfig::new(Rules::new(Scope::Specs(Vec::new()))) };
    let [certificate, key, authority] = FILES.map(|file| clusters.folder().join(file));
    let allowed = AllowedClients::default();
    let tls = TlsFiles { certificate, key, clients: ClientFiles::Authority { files: vec![authority], allowed } };
    let selector = format!("{}={}", LABEL.0, LABEL.1);
    let fleet = FleetConfig {
        selector: selector.parse().map_err(|error| anyhow!("{selector}: {error}"))?,
        namespaces: None,
        trust_domain: TRUST_DOMAIN.parse()?,
        nodes: NodeAccess::default(),
    };
    let group_series = GroupSeries::SumsOnly;
    Ok(Config { tls: Some(tls), fleet: Some(fleet), group_series, ..Config::new(index).on_free_ports() })
}

/// Returns the autoscalers of all Clusters, and writes the files of the first one.
fn plan(clusters: &Clusters, authority: &Authority, provider: SocketAddr) -> anyhow::Result<Plan> {
    let callers = callers::autoscalers(clusters.clusters(), authority, |_| true)?;
    let first = &callers[0];
    for (file, content) in [("c0.crt", &first.certificate), ("c0.key", &first.key)] {
        fs::write(clusters.folder().join(file), content)?;
    }
    Ok(Plan {
        provider,
        host: HOST.to_owned(),
        authority: authority.pem.clone(),
        // A thousand have Cluster Autoscaler's own pause.
        pause: Duration::from_secs(1).max(Duration::from_millis(10) * u32::try_from(callers.len())?),
        report: Duration::from_secs(1),
        callers,
    })
}

fn group(cluster: &ClusterOf) -> String {
    format!("MachineDeployment/{}/{}-group-0000", cluster.namespace, cluster.name)
}

/// Prints a step, with its duration.
fn step(out: &mut (dyn Write + Send), began: Instant, what: &str) -> anyhow::Result<()> {
    writeln!(out, "  {:5.2} s  {what}", began.elapsed().as_secs_f64())?;
    Ok(out.flush()?)
}

/// Lets a Cluster grow, by the calls of its autoscaler.
async fn scale(clusters: &Clusters, plan: &Plan, number: usize, out: &mut (dyn Write + Send)) -> anyhow::Result<()> {
    let began = Instant::now();
    let all = clusters.clusters();
    let cluster = &all[number];
    let nodes = || all.iter().map(|cluster| cluster.nodes().len()).collect::<Vec<_>>();
    let mut expected = nodes();
    // A group's max size is twice the number of Machines that it begins with.
    let more = MORE.min(expected[number].max(1));
    expected[number] += more;
    let mut client = callers::connect(plan, &plan.callers[number]).await?;
    let request = NodeGroupIncreaseSizeRequest { delta: i32::try_from(more)?, id: group(cluster) };
    client.node_group_increase_size(request).await?;
    until("the new Nodes have joined", async || Ok((cluster.nodes().len() == expected[number]).then_some(()))).await?;
    ensure!(nodes() == expected, "another Cluster has other Nodes");
    step(out, began, &format!("{} grows to {} Nodes; nobody else does", cluster.text(), expected[number]))
}

/// Asks for the group of another Cluster, which doesn't exist for the caller.
async fn ask_for_others(
    clusters: &Clusters,
    plan: &Plan,
    (number, other): (usize, usize),
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    let began = Instant::now();
    let [cluster, other] = [number, other].map(|number| &clusters.clusters()[number]);
    let mut client = callers::connect(plan, &plan.callers[number]).await?;
    let answer = client.node_group_target_size(NodeGroupTargetSizeRequest { id: group(other) }).await;
    let code = answer.map_or_else(|status| status.code(), |_| Code::Ok);
    ensure!(code == Code::NotFound, "the group of another Cluster is answered with {code:?}");
    step(out, began, &format!("{} asks for the group of {}: NOT_FOUND", cluster.text(), other.text()))
}

/// Lets a Cluster opt out and in again, while another one is served.
async fn opt_out(
    clusters: &Clusters,
    plan: &Plan,
    (number, other): (usize, usize),
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    let began = Instant::now();
    let cluster = &clusters.clusters()[number];
    let label = |value: Option<&str>| {
        let resource = Resource::new("cluster.x-k8s.io", "v1beta2", "clusters");
        let body = json!({"metadata": {"labels": {LABEL.0: value}}});
        let api = clusters.management().api();
        let (namespace, name) = (&cluster.namespace, &cluster.name);
        let patched = api.patch(&resource, namespace, name, PatchKind::Merge, Subresource::Main, body);
        patched.map(drop).map_err(|refusal| anyhow!("{}: {}", cluster.text(), refusal.message))
    };
    let client = callers::connect(plan, &plan.callers[number]).await?;
    let refreshed = async || client.clone().refresh(RefreshRequest {}).await;
    label(None)?;
    until("the Cluster is denied", async || {
        let denied = refreshed().await.is_err_and(|status| status.code() == Code::PermissionDenied);
        Ok(denied.then_some(()))
    })
    .await?;
    step(out, began, &format!("{} opts out: its next Refresh is denied", cluster.text()))?;
    let mut served = callers::connect(plan, &plan.callers[other]).await?;
    served.refresh(RefreshRequest {}).await.context("another Cluster is concerned")?;
    label(Some(LABEL.1))?;
    until("the Cluster is served again", async || Ok(refreshed().await.ok())).await?;
    step(out, began, &format!("{} opts in again, and is served", cluster.text()))
}

/// Prints the commands of the program that look at all Clusters, or at this one.
fn print_commands(clusters: &Clusters, cluster: &ClusterOf, server: &App, out: &mut dyn Write) -> anyhow::Result<()> {
    let (run, of_one) = (program::link(&clusters.management_kubeconfig())?, format!("--cluster={}", cluster.text()));
    let management = format!("--management-kubeconfig={}", clusters.management_kubeconfig().display());
    let flags = flags(clusters).join(" ");
    if let Some(admin) = server.admin_address() {
        writeln!(out, "  {run} clusters --server http://{admin}    # those in need first")?;
        writeln!(out, "  {run} groups --all {of_one} --server http://{admin}")?;
    }
    writeln!(out, "  {run} explain {of_one} {management}")?;
    writeln!(out, "  {run} check {of_one} --server-name={HOST} {flags}    # would its autoscaler be served?")?;
    writeln!(out, "  {run} watch {of_one} {management}    # while you scale with the next ones")?;
    writeln!(out, "  {run} serve {flags}    # another replica")?;
    Ok(())
}
