//! `check`: predicts whether `serve` would work with the same flags. It checks clusters, versions, permissions, scope,
//! node groups and certificates. It must never write anything but dry runs, and a failed check must not hide others.

mod clusters;
mod files;
mod groups;
pub mod needed_rights;
mod report;
mod rights;
mod text;

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::{Args, ValueEnum};
use jiff::Timestamp;

pub use self::report::CheckId;
use self::{
    clusters::Clusters,
    needed_rights::{Needs, Side, not_served},
    report::{Findings, Report},
};
use super::{
    CliError, Color, OneCluster, ServeArgs, help,
    live_index::LiveIndex,
    printing::{json, print, yaml},
    usage::given,
    values::timeout,
};
use app::IndexConfig;
use connect::WorkloadSource;

/// The remaining validity below which a certificate should be renewed.
const SOON: Duration = Duration::from_secs(30 * 24 * 3600);

/// The flags of `check`, as typed.
#[derive(Args, Clone, Debug)]
pub struct CheckArgs {
    /// Output format
    #[arg(long, short, value_name = "FORMAT", default_value = "text", help_heading = help::OUTPUT)]
    pub output: CheckOutput,

    /// Show every check, not only a line per group, warnings and errors
    #[arg(long, short, help_heading = help::OUTPUT)]
    pub verbose: bool,

    /// Colour the output; auto: on a terminal, unless NO_COLOR is set
    #[arg(long, value_name = "WHEN", default_value = "auto", help_heading = help::OUTPUT, hide_short_help = true)]
    pub color: Color,

    /// How long the whole run may take
    #[arg(long, value_name = "DURATION", default_value = DEFAULT_TIMEOUT, help_heading = help::OUTPUT, hide_short_help = true)]
    pub timeout: String,

    /// Host in Cluster Autoscaler's --cloud-config, which the server's certificate must be valid for
    #[arg(long, value_name = "HOST", help_heading = help::GRPC)]
    pub server_name: Option<String>,

    /// Exit with 1 for warnings too
    #[arg(long, help_heading = help::OUTPUT)]
    pub strict: bool,

    /// The flags with which serve would be called.
    #[command(flatten)]
    pub serve: ServeArgs,
}

const DEFAULT_TIMEOUT: &str = "30s";

/// The format of the output.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum CheckOutput {
    /// For people: a line for each group of checks.
    Text,
    /// One JSON object.
    Json,
    /// The same as YAML.
    Yaml,
}

impl CheckArgs {
    /// Runs the checks and prints the report. It fails if a check failed, or with `--strict` if there is a warning.
    pub(super) fn run(self) -> Result<(), CliError> {
        let patience = timeout(&self.timeout)?;
        let server_name = given(self.server_name.as_deref());
        let cluster = OneCluster::try_from(self.serve)?;
        let runtime = tokio::runtime::Runtime::new().context("can't check")?;
        let report = runtime.block_on(examine(&cluster, server_name, patience));
        // Tasks that hang are abandoned.
        runtime.shutdown_background();
        print(&match self.output {
            CheckOutput::Text => text::text(&report, self.verbose, self.color.is_on()),
            CheckOutput::Json => json(&report)?,
            CheckOutput::Yaml => yaml(&report)?,
        })?;
        Ok(verdict(&report, self.strict)?)
    }
}

fn verdict(report: &Report, strict: bool) -> anyhow::Result<()> {
    ensure!(report.errors == 0, "{} of {} checks failed", report.errors, report.checks.len());
    ensure!(!strict || report.warnings == 0, "{} warnings, and --strict takes none", report.warnings);
    Ok(())
}

async fn examine(cluster: &OneCluster, server_name: Option<&str>, patience: Duration) -> Report {
    let until = Instant::now() + patience;
    let mut findings = Findings::default();
    let serve = &cluster.config;
    files::flags(&mut findings, &serve.warnings);
    let prices = files::prices(&mut findings, serve.prices.as_deref());
    let now = Timestamp::now();
    files::tls(&mut findings, serve.tls.as_ref(), (&serve.listen, server_name), now);

    let clusters = Clusters::reach(&mut findings, serve, until).await;
    let mut needs = Needs {
        group: serve.rules.keys.group.clone(),
        namespaces: serve.rules.scope.namespaces(),
        not_served: not_served(clusters.core.as_ref()),
        templates: Vec::new(),
        bootstrap: Vec::new(),
        remember: serve.remember.clone(),
        secret: serve.workload.secret().cloned(),
        without_nodes: serve.workload == WorkloadSource::None,
        writes: !serve.scale.read_only,
        events: serve.events,
    };
    let mut reviews = rights::review_all(&clusters, needs.rights(), until).await;
    if let (Some(management), Some(core)) = (&clusters.management, &clusters.core) {
        let mut rules = serve.rules.clone();
        rules.prices = prices;
        let config = IndexConfig { rules, ..serve.index() };
        let live = LiveIndex::start(management.clone(), config, patience);
        let inspection = groups::Inspection::read(&live, (&reviews, core), clusters.workload.is_some(), until).await;
        needs.templates = clusters::template_resources(management, &inspection.kinds(), until).await;
        needs.bootstrap = clusters::template_resources(management, &inspection.bootstrap_kinds(), until).await;
        let known: Vec<_> = reviews.iter().map(|review| review.right.clone()).collect();
        let further = needs.rights().into_iter().filter(|right| !known.contains(right)).collect();
        reviews.extend(rights::review_all(&clusters, further, until).await);
        rights::judge(&mut findings, &reviews, Some(&inspection));
        if serve.scale.read_only {
            findings.skip(CheckId::SizeWrite, "nothing is written, by --read-only");
        } else {
            groups::judge(&mut findings, (management, core), (&reviews, &inspection), until).await;
        }
        inspection.judge(&mut findings, &serve.rules);
        for (cluster, selector) in groups::named_clusters(&serve.rules.scope).zip(&cluster.fleet) {
            clusters::judge_labels(&mut findings, (management, core), (&cluster, selector), until).await;
        }
        live.end().await;
    } else {
        rights::judge(&mut findings, &reviews, None);
        groups::skip(
            &mut findings,
            if clusters.management.is_some() { CheckId::ClusterApi } else { CheckId::ManagementCluster },
        );
    }
    for side in [Side::Management, Side::Workload] {
        if clusters.of(side).is_none() && !(side == Side::Workload && needs.without_nodes) {
            findings.skip(CheckId::Right, format!("rights in the {} cluster: it isn't reached", side.as_str()));
        }
    }
    Report::from(findings.0)
}
