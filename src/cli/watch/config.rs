//! The configuration of `watch`, in the types of the modules below. Only the rules file may be read here, and no API
//! server asked.

use std::{collections::BTreeSet, fmt, fs};

use change_stream::{
    changes::FieldSelector,
    notify::{Destination, Rule, SinkKind, UrlSource, parse_rules},
    watch as stream,
    watch::{Config, NamespaceSelection, Narrowing, ResourceQuery, ResourceRef},
};
use clap::{Args, ValueEnum};
use connect::{ClusterRef, NodeAccess, WorkloadSource};
use rules::{LabelSelector, capi::DEFAULT_GROUP};

use crate::cli::{
    ClusterArgs, Color, UsageError, help,
    usage::given,
    values::{NAMESPACE, capi_group, capi_version, is_namespace, management, source},
};

/// The configuration of `watch`.
#[derive(Clone, Debug)]
pub(in crate::cli) struct WatchConfig {
    /// The objects that are watched, and the notifications.
    pub(super) stream: Config,
    pub(super) output: Output,
    pub(super) color: Color,
    /// True if the objects that exist at the start are shown.
    pub(super) show_initial: bool,
}

impl TryFrom<WatchArgs> for WatchConfig {
    type Error = UsageError;

    fn try_from(args: WatchArgs) -> Result<Self, UsageError> {
        let cluster = match given(args.cluster.as_deref()) {
            Some(text) => Some(text.parse::<ClusterRef>().map_err(|error| wrong("--cluster", text, &error))?),
            None => None,
        };
        let workload = workload(&args, cluster.as_ref())?;
        let rules = rules(&args)?;
        if args.output == Output::None && rules.is_empty() {
            return Err(plain("-o none shows nothing: give --webhook, --slack-webhook or --notify-rules with it"));
        }
        let narrowing = narrowing(&args, cluster.as_ref())?;
        let ignore = args.ignore.iter().map(|text| text.parse().map_err(|error| wrong("--ignore", text, &error)));
        let stream = Config {
            resources: resources(&args, narrowing.as_ref())?,
            namespaces: namespaces(&args, cluster.as_ref())?,
            ignore: ignore.collect::<Result<_, _>>()?,
            target: args.target.into(),
            allow_missing: args.allow_missing,
            rules,
            narrowing,
            management: management(args.clusters.management_kubeconfig.as_deref(), args.clusters.context.as_deref())?,
            workload,
        };
        Ok(Self { stream, output: args.output, color: args.color, show_initial: args.show_initial })
    }
}

fn wrong(flag: &'static str, value: &str, reason: &dyn fmt::Display) -> UsageError {
    if value.contains("://") {
        return plain(&format!(
            "{flag}: what was given is a URL and isn't repeated here, since it may be a secret: no URL belongs there"
        ));
    }
    UsageError::Flag { flag, value: value.to_owned(), reason: reason.to_string() }
}

fn plain(text: &str) -> UsageError {
    UsageError::Watch(text.to_owned())
}

fn workload(args: &WatchArgs, cluster: Option<&ClusterRef>) -> Result<WorkloadSource, UsageError> {
    let text = given(args.clusters.workload_nodes.as_deref());
    let refused = |why: &dyn fmt::Display| wrong("--workload-nodes", text.unwrap_or_default(), why);
    let nodes = text.map(str::parse::<NodeAccess>).transpose().map_err(|error| refused(&error))?.unwrap_or_default();
    let is_target = args.target == Target::Workload;
    match (given(args.clusters.workload_kubeconfig.as_deref()), cluster) {
        (Some(text), _) => Ok(WorkloadSource::Own(source(text))),
        (None, Some(_)) if is_target && nodes == NodeAccess::None => {
            Err(refused(&"--target workload needs the kubeconfig of a Secret, or --workload-kubeconfig"))
        }
        (None, Some(cluster)) => Ok(nodes.of(cluster)),
        (None, None) if is_target && text.is_some() => Err(refused(
            &"a Secret belongs to a Cluster: give --cluster, or leave out CAPI_AUTOSCALER_WORKLOAD_NODES too",
        )),
        (None, None) => Ok(WorkloadSource::Management),
    }
}

fn namespaces(args: &WatchArgs, cluster: Option<&ClusterRef>) -> Result<NamespaceSelection, UsageError> {
    if args.all_namespaces {
        return Ok(NamespaceSelection::All);
    }
    let names = args.namespace.iter().flat_map(|value| value.split(','));
    let names: BTreeSet<_> = names.map(|name| name.trim().to_owned()).collect();
    if let Some(bad) = names.iter().find(|name| !is_namespace(name)) {
        return Err(wrong("--namespace", bad, &NAMESPACE));
    }
    match (names.is_empty(), cluster) {
        (false, _) => Ok(NamespaceSelection::Named(names)),
        // The objects of a workload cluster have nothing to do with the Cluster's namespace.
        (true, _) if args.target == Target::Workload => Ok(NamespaceSelection::All),
        (true, Some(cluster)) => Ok(NamespaceSelection::Named(BTreeSet::from([cluster.namespace().to_owned()]))),
        (true, None) => Ok(NamespaceSelection::OfContext),
    }
}

/// Returns the narrowing to a Cluster; only the management cluster has objects of Clusters.
fn narrowing(args: &WatchArgs, cluster: Option<&ClusterRef>) -> Result<Option<Narrowing>, UsageError> {
    let Some(cluster) = cluster.filter(|_| args.target == Target::Management) else { return Ok(None) };
    let group = capi_group(&args.capi_group)?.to_owned();
    Ok(Some(Narrowing { group, cluster: cluster.clone() }))
}

fn resources(args: &WatchArgs, narrowing: Option<&Narrowing>) -> Result<Vec<ResourceQuery>, UsageError> {
    let labels = match given(args.selector.as_deref()) {
        Some(text) => {
            Some(text.parse::<LabelSelector>().map_err(|error| wrong("--selector", text, &error))?.to_string())
        }
        None => None,
    };
    let fields = match given(args.field_selector.as_deref()) {
        Some(text) => {
            text.parse::<FieldSelector>().map_err(|error| wrong("--field-selector", text, &error))?;
            Some(text.to_owned())
        }
        None => None,
    };
    let names: Vec<_> = args.resources.iter().flat_map(|value| value.split(',')).map(str::trim).collect();
    if names.iter().any(|name| name.contains('/')) {
        // It may be the secret URL of a webhook, with or without its scheme.
        return Err(plain(
            "RESOURCE: a name with a slash can't be used (it isn't repeated here, since it may be part of a secret URL): \
             name a resource, such as machines, and one object of it by --field-selector metadata.name=NAME",
        ));
    }
    if let Some(bad) = names.iter().find(|name| name.is_empty() || name.contains(char::is_whitespace)) {
        return Err(wrong("RESOURCE", bad, &"name a resource, such as machines or Machine.cluster.x-k8s.io"));
    }
    if !names.is_empty() {
        let by_name = |name: &&str| ResourceQuery {
            by: ResourceRef::Name((*name).to_owned()),
            labels: labels.clone(),
            fields: fields.clone(),
        };
        return Ok(names.iter().map(by_name).collect());
    }
    if args.target == Target::Workload {
        return Ok(vec![ResourceQuery { by: ResourceRef::Name("nodes.v1".into()), labels, fields }]);
    }
    let group = capi_group(&args.capi_group)?;
    let version = capi_version(args.capi_version.as_deref())?;
    let kinds = ["Cluster", "MachineDeployment", "MachineSet", "Machine", "MachinePool"];
    let kind = |kind: &str| {
        let by = ResourceRef::Kind { group: group.to_owned(), version: version.clone(), kind: kind.to_owned() };
        let wanted = ResourceQuery { by, labels: labels.clone(), fields: fields.clone() };
        match narrowing {
            Some(narrowing) => narrowing.of_kind(wanted, kind),
            None => wanted,
        }
    };
    Ok(kinds.into_iter().map(kind).collect())
}

/// Returns the rules of the file and of the flags. No error quotes a value that might be a URL.
fn rules(args: &WatchArgs) -> Result<Vec<Rule>, UsageError> {
    let mut rules = Vec::new();
    let flags =
        [("--webhook", &args.webhook, SinkKind::Webhook), ("--slack-webhook", &args.slack_webhook, SinkKind::Slack)];
    for (flag, value, kind) in flags {
        let Some(text) = given(value.as_deref()) else { continue };
        let url = text.parse::<UrlSource>().map_err(|error| plain(&format!("{flag}: {error}")))?;
        rules.push(Rule::everything(flag, Destination { kind, url, allow_http: args.allow_http }));
    }
    if let Some(path) = given(args.notify_rules.as_deref()) {
        if path.contains("://") {
            return Err(plain(
                "--notify-rules: give the path of a rules file; a webhook's URL goes into a file that a rule names \
                 (what was given isn't repeated here)",
            ));
        }
        let text = fs::read_to_string(path).map_err(|error| {
            wrong("--notify-rules", path, &format!("can't read it: {error}: give the path of a rules file"))
        })?;
        rules.extend(parse_rules(&text).map_err(|error| wrong("--notify-rules", path, &error))?);
    }
    Ok(rules)
}

// The flags of `watch`, as typed. Their help texts here are their documentation.

/// The flags of `watch`, as typed.
#[derive(Args, Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct WatchArgs {
    /// Kinds, such as machines, md or Machine.cluster.x-k8s.io, separated by spaces or commas. Default: Cluster API's
    /// kinds; with --target workload, Nodes
    #[arg(value_name = "RESOURCE")]
    pub resources: Vec<String>,

    /// Namespaces, separated by commas. Default: that of --cluster, else of the kubeconfig's context; with --target
    /// workload, all
    #[arg(short, long, value_name = "NS[,NS]", conflicts_with = "all_namespaces", help_heading = help::SELECTION)]
    pub namespace: Vec<String>,

    /// All namespaces
    #[arg(short = 'A', long, help_heading = help::SELECTION)]
    pub all_namespaces: bool,

    /// Label selector
    #[arg(short = 'l', long, value_name = "SELECTOR", help_heading = help::SELECTION)]
    pub selector: Option<String>,

    /// Field selector that the API server supports, such as metadata.name=one
    #[arg(long, value_name = "SELECTOR", help_heading = help::SELECTION)]
    pub field_selector: Option<String>,

    /// Which cluster to watch
    #[arg(long, value_name = "CLUSTER", default_value = "management", help_heading = help::CLUSTERS)]
    pub target: Target,

    /// Output format; none: notifications only
    #[arg(short, long, value_name = "FORM", default_value = "text", help_heading = help::OUTPUT)]
    pub output: Output,

    /// Colour the output; auto: on a terminal, unless NO_COLOR is set
    #[arg(long, value_name = "WHEN", default_value = "auto", help_heading = help::OUTPUT, hide_short_help = true)]
    pub color: Color,

    /// Ignore changes at this JSON pointer, such as /status/conditions/*/message. Repeatable
    #[arg(long, value_name = "PATH", help_heading = help::OUTPUT)]
    pub ignore: Vec<String>,

    /// Show existing objects too
    #[arg(long, help_heading = help::OUTPUT)]
    pub show_initial: bool,

    /// Wait for kinds and namespaces that don't exist yet
    #[arg(long, help_heading = help::SELECTION, hide_short_help = true)]
    pub allow_missing: bool,

    /// Post changes as JSON to the URL in a file (file:PATH) or variable (env:NAME)
    #[arg(long, value_name = "SOURCE", help_heading = help::NOTIFICATIONS)]
    pub webhook: Option<String>,

    /// Post changes to the Slack webhook whose URL is in a file (file:PATH) or variable (env:NAME)
    #[arg(long, value_name = "SOURCE", help_heading = help::NOTIFICATIONS)]
    pub slack_webhook: Option<String>,

    /// YAML file with rules for notifications
    #[arg(long, value_name = "FILE", help_heading = help::NOTIFICATIONS)]
    pub notify_rules: Option<String>,

    /// Allow http beyond loopback for --webhook and --slack-webhook
    #[arg(long, help_heading = help::NOTIFICATIONS, hide_short_help = true)]
    pub allow_http: bool,

    #[command(flatten)]
    #[allow(missing_docs, reason = "a text here would become that of the flags")]
    pub clusters: ClusterArgs,

    /// Only Cluster API objects of this Cluster; for other kinds, only its namespace
    #[arg(long, env = "CAPI_AUTOSCALER_CLUSTER", value_name = "NAMESPACE/NAME", help_heading = help::CLUSTERS)]
    pub cluster: Option<String>,

    /// API group of Cluster API
    #[arg(long, env = "CAPI_GROUP", value_name = "GROUP", default_value = DEFAULT_GROUP, help_heading = help::CLUSTERS, hide_short_help = true)]
    pub capi_group: String,

    /// API version of that group. Default: the one that the API server prefers
    #[arg(long, env = "CAPI_VERSION", value_name = "VERSION", help_heading = help::CLUSTERS, hide_short_help = true)]
    pub capi_version: Option<String>,
}

/// Which cluster is watched.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Target {
    /// The management cluster.
    Management,
    /// The workload cluster.
    Workload,
}

/// The form in which changes are shown.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Output {
    /// For people.
    Text,
    /// One line a change.
    Line,
    /// One JSON object a line.
    Json,
    /// Not at all.
    None,
}

impl From<Target> for stream::Target {
    fn from(target: Target) -> Self {
        match target {
            Target::Management => Self::Management,
            Target::Workload => Self::Workload,
        }
    }
}
