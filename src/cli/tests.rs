//! Tests of the flags of `serve`, alone and together. Environment variables are tested with the binary, in
//! `tests/program/command_line`.

use std::{fmt::Write as _, fs, path::Path, time::Duration};

use clap::{Arg, CommandFactory, Parser};
use rstest::rstest;
use rules::{Architecture, Rules, Scope, ScopeSpec};

use super::{Cli, Command, UsageError, serve, usage};
use app::{Config, IndexConfig};
use connect::{NodeAccess, Source, WorkloadSource};
use service::listen::PRIVATE_SOCKET;

fn config(flags: &[&str]) -> Result<Config, UsageError> {
    let cli = Cli::try_parse_from(["capi-autoscaler-provider", "serve"].iter().chain(flags)).unwrap();
    let Command::Serve(args) = cli.command else { panic!("it isn't serve") };
    serve::OneCluster::try_from(*args).map(|one| one.config)
}

fn wrong(flags: &[&str]) -> String {
    config(flags).unwrap_err().to_string()
}

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

/// Returns the examples below the help of a subcommand, without the prompt's other commands.
fn examples(subcommand: &clap::Command) -> Vec<Vec<String>> {
    let text = subcommand.get_after_help().map(ToString::to_string).unwrap_or_default();
    let name = "capi-autoscaler-provider ";
    let of_line = |line: &str| {
        let call = &line[line.rfind(name)?..];
        let call = call.split(" > ").next().unwrap_or(call);
        Some(call.split_whitespace().map(str::to_owned).collect())
    };
    text.lines().filter(|line| !line.trim_start().starts_with('#')).filter_map(of_line).collect()
}

#[test]
fn each_subcommand_has_three_examples_that_can_be_typed() {
    for subcommand in Cli::command().get_subcommands() {
        let examples = examples(subcommand);
        assert_eq!(examples.len(), 3, "{}", subcommand.get_name());
        for example in examples {
            assert_eq!(example[1], subcommand.get_name());
            let parsed = Cli::try_parse_from(&example).unwrap_or_else(|error| panic!("{example:?}: {error}"));
            let wrong = match parsed.command {
                Command::Serve(args) => Config::try_from(*args).err(),
                Command::Check(args) => serve::OneCluster::try_from(args.serve).err(),
                Command::Explain(args) => super::ExplainConfig::try_from(*args).err(),
                Command::Watch(args) => super::WatchConfig::try_from(*args).err(),
                Command::Groups(_)
                | Command::Clusters(_)
                | Command::LogLevel(_)
                | Command::Completions(_)
                | Command::Man(_) => None,
            };
            assert_eq!(wrong, None, "{example:?}");
        }
    }
}

#[test]
fn all_flags_stand_in_groups_and_the_short_help_fits_two_screens() {
    let mut cli = Cli::command();
    cli.build();
    for subcommand in cli.get_subcommands_mut() {
        let flags = subcommand.get_arguments().filter(|arg| !arg.is_positional());
        let ungrouped = flags.filter(|arg| arg.get_help_heading().is_none()).map(|arg| arg.get_id().as_str());
        assert_eq!(ungrouped.filter(|id| !["help", "version"].contains(id)).collect::<Vec<_>>(), [""; 0]);
        let help = subcommand.render_help().to_string();
        assert!(help.lines().count() <= 100, "{} lines:\n{help}", help.lines().count());
    }
}

#[test]
fn the_configuration_of_an_index_has_the_defaults_of_the_flags() {
    let of_flags = config(&["--all-clusters"]).unwrap();
    let by_hand =
        Config { instance: of_flags.instance.clone(), ..Config::new(IndexConfig::new(Rules::new(Scope::All))) };
    assert_eq!(format!("{by_hand:#?}"), format!("{of_flags:#?}"));
}

#[rstest]
#[case::its_secret(&[], NodeAccess::default().of(&"team-a/prod".parse().unwrap()))]
#[case::a_kubeconfig(&["--workload-kubeconfig", "/etc/workload"], WorkloadSource::Own(Source::File("/etc/workload".into())))]
fn a_cluster_sets_the_scope_and_its_secret_unless_there_is_a_workload_kubeconfig(
    #[case] flags: &[&str],
    #[case] workload: WorkloadSource,
) {
    let config = config(&[&["--cluster", "team-a/prod"], flags].concat()).unwrap();
    assert_eq!(config.rules.scope, Scope::Specs(vec![ScopeSpec::cluster("team-a", "prod")]));
    assert_eq!(config.workload, workload);
}

#[rstest]
#[case::of_one(&["--cluster", "team-a/prod", "--workload-nodes", "{cluster}-nodes"], "Secret team-a/prod-nodes")]
#[case::none_of_one(&["--cluster", "team-a/prod", "--workload-nodes", "none"], "none")]
#[case::none_of_all(&["--all-clusters", "--workload-nodes", "none"], "none")]
#[case::unset(&["--all-clusters", "--workload-nodes", ""], "the management cluster itself")]
fn nodes_are_read_by_a_secret_of_the_cluster_or_not_at_all(#[case] flags: &[&str], #[case] expected: &str) {
    assert_eq!(config(flags).unwrap().workload.to_string(), expected);
}

#[rstest]
#[case::a_kubeconfig(&["--cluster", "a/b", "--workload-kubeconfig", "w", "--workload-nodes", "none"], "already")]
#[case::no_cluster(&["--all-clusters", "--workload-nodes", "{cluster}-nodes"], "give --cluster or --fleet-selector")]
#[case::one_for_all(&["--cluster", "a/b", "--workload-nodes", "nodes"], "{cluster} stands once")]
fn credentials_for_nodes_that_contradict_are_refused(#[case] flags: &[&str], #[case] expected: &str) {
    let error = config(flags).unwrap_err().to_string();
    assert!(error.starts_with("--workload-nodes (or CAPI_AUTOSCALER_WORKLOAD_NODES)"), "{error}");
    assert!(error.contains(expected), "{error}");
}

/// The topologies of the contract, section 5.
#[rstest]
#[case::self_managed(&[], Source::Default, WorkloadSource::Management)]
#[case::one_file(&["--management-kubeconfig", "m"], Source::File("m".into()), WorkloadSource::Management)]
#[case::beside_the_management_cluster(
    &["--workload-kubeconfig", "w"], Source::Default, WorkloadSource::Own(Source::File("w".into()))
)]
#[case::in_the_workload_cluster(
    &["--management-kubeconfig", "m", "--workload-kubeconfig", "in-cluster"],
    Source::File("m".into()), WorkloadSource::Own(Source::InCluster)
)]
#[case::both_files(
    &["--management-kubeconfig", "m", "--workload-kubeconfig", "w"],
    Source::File("m".into()), WorkloadSource::Own(Source::File("w".into()))
)]
#[case::a_file_of_that_name(
    &["--management-kubeconfig", "./in-cluster"], Source::File("./in-cluster".into()), WorkloadSource::Management
)]
#[case::as_kubectl_says_it(&["--kubeconfig", "m"], Source::File("m".into()), WorkloadSource::Management)]
#[case::a_context(
    &["--context", "c"], Source::Context { file: None, name: "c".into() }, WorkloadSource::Management
)]
#[case::a_context_of_a_file(
    &["--kubeconfig", "m", "--context", "c"],
    Source::Context { file: Some("m".into()), name: "c".into() }, WorkloadSource::Management
)]
fn every_topology_can_be_said(#[case] flags: &[&str], #[case] management: Source, #[case] workload: WorkloadSource) {
    let config = config(&[&["--all-clusters"], flags].concat()).unwrap();
    assert_eq!((config.management, config.workload), (management, workload));
}

#[rstest]
#[case::repeated(&["--node-group-auto-discovery", "clusterapi:namespace=a", "--node-group-auto-discovery", "clusterapi:x=y"])]
#[case::separated_by_space(&["--node-group-auto-discovery", "clusterapi:namespace=a \n clusterapi:x=y"])]
#[case::separated_by_semicolon(&["--node-group-auto-discovery", "clusterapi:namespace=a;clusterapi:x=y;"])]
fn discovery_specs_add_up(#[case] flags: &[&str]) {
    let specs = ["clusterapi:namespace=a", "clusterapi:x=y"].map(|spec| spec.parse().unwrap());
    assert_eq!(config(flags).unwrap().rules.scope, Scope::Specs(specs.to_vec()));
}

#[rstest]
#[case(&["--cluster", "a/b", "--all-clusters"], "--cluster and --all-clusters")]
#[case(&["--cluster", "a/b", "--node-group-auto-discovery", "clusterapi:"], "--cluster and --node-group-auto-discovery")]
#[case(&["--all-clusters", "--node-group-auto-discovery", "clusterapi:"], "--node-group-auto-discovery and --all-clusters")]
fn only_one_way_may_choose_the_scope(#[case] flags: &[&str], #[case] pair: &str) {
    let message = wrong(flags);
    assert!(message.starts_with(&format!("{pair} exclude each other")), "{message}");
}

#[rstest]
#[case::none(&[])]
#[case::empty(&["--cluster", "", "--node-group-auto-discovery", " "])]
#[case::only_a_workload(&["--workload-kubeconfig", "w"])]
fn without_a_scope_it_says_how_to_choose_one(#[case] flags: &[&str]) {
    assert_eq!(config(flags).unwrap_err(), UsageError::NoScope);
    let message = wrong(flags);
    for way in ["--cluster NAMESPACE/NAME", "--node-group-auto-discovery clusterapi:", "--all-clusters"] {
        assert!(message.contains(way), "{message}");
    }
}

#[rstest]
#[case::listen(&["--listen", "8086"], "--listen (or CAPI_AUTOSCALER_LISTEN): \"8086\"")]
#[case::listen_name(&["--listen", "localhost:8086"], "IP address and a port")]
#[case::socket_mode_of_ip(&["--listen-socket-mode", "0600"], "--listen-socket-mode needs --listen (or CAPI_AUTOSCALER_LISTEN)")]
#[case::socket_mode(&["--listen", "unix:///a", "--listen-socket-mode", "rw"], "\"rw\" can't be used: it has to be octal")]
#[case::socket_with_tls(
    &["--listen", "unix:///a", "--tls-cert-file", "c", "--tls-key-file", "k"],
    "--listen (or CAPI_AUTOSCALER_LISTEN): \"unix:///a\" can't be used: a Unix socket has no TLS"
)]
#[case::probe_listen(&["--probe-listen", "8082"], "--probe-listen (or CAPI_AUTOSCALER_PROBE_LISTEN): \"8082\"")]
#[case::http_listen(&["--http-listen", ":8080"], "--http-listen (or CAPI_AUTOSCALER_HTTP_LISTEN): \":8080\"")]
#[case::admin_listen(&["--admin-listen", "no"], "--admin-listen (or CAPI_AUTOSCALER_ADMIN_LISTEN): \"no\"")]
#[case::admin_hosts(
    &["--admin-allowed-hosts", "https://a"],
    "--admin-allowed-hosts (or CAPI_AUTOSCALER_ADMIN_ALLOWED_HOSTS): \"https://a\" can't be used: it has to be a DNS name"
)]
#[case::capacity_words(
    &["--all-clusters", "--capacity-error-words", "no blade left; - "],
    "--capacity-error-words (or CAPI_AUTOSCALER_CAPACITY_ERROR_WORDS): \"no blade left; - \" can't be used: \"-\" has no"
)]
#[case::admin_beyond_loopback(&["--admin-listen", "0.0.0.0:8081"], "isn't a loopback address")]
#[case::cluster(&["--cluster", "prod"], "--cluster (or CAPI_AUTOSCALER_CLUSTER): \"prod\" can't be used: \"prod\" is not NAMESPACE/NAME")]
#[case::discovery(&["--node-group-auto-discovery", "asg:tag=x"], "--node-group-auto-discovery (or CAPI_AUTOSCALER_NODE")]
#[case::one_of_several(&["--node-group-auto-discovery", "clusterapi:a=b;clusterapi:c"], "\"clusterapi:c\"")]
#[case::space_inside(&["--node-group-auto-discovery", "clusterapi:namespace=a, clusterName=b"], "\"clusterName=b\"")]
#[case::staleness(&["--max-staleness", "2"], "--max-staleness (or CAPI_AUTOSCALER_MAX_STALENESS): \"2\"")]
#[case::no_staleness(&["--max-staleness", "0s"], "longer than 0")]
#[case::group(&["--capi-group", "Cluster"], "--capi-group (or CAPI_GROUP): \"Cluster\"")]
#[case::version(&["--capi-version", "cluster.x-k8s.io/v1beta1"], "--capi-version (or CAPI_VERSION)")]
#[case::context(
    &["--management-kubeconfig", "in-cluster", "--context", "c"],
    "--context (or CAPI_AUTOSCALER_CONTEXT): \"c\" can't be used: a service account has no contexts"
)]
#[case::regex(&["--additional-sync-machine-labels", "("], "--additional-sync-machine-labels (or CAPI_AUTOSCALER_ADD")]
fn a_wrong_value_is_named_with_its_flag_and_variable(#[case] flags: &[&str], #[case] part: &str) {
    let scope: &[&str] =
        if flags[0].contains("-c") || flags[0].contains("discovery") { &[] } else { &["--all-clusters"] };
    let scope = if flags[0].starts_with("--capi") { &["--all-clusters"] } else { scope };
    let message = wrong(&[scope, flags].concat());
    assert!(message.contains(part), "{message}");
}

#[test]
fn a_unix_socket_has_a_mode() {
    let flags = ["--all-clusters", "--listen", "unix:///run/a.sock"];
    let private = config(&flags).unwrap();
    assert_eq!((private.listen.to_string().as_str(), private.socket_mode), (flags[2], PRIVATE_SOCKET));
    assert!(private.reflection && private.tls.is_none() && private.warnings.is_empty());
    let open = config(&[&flags[..], &["--listen-socket-mode", "0666"]].concat()).unwrap();
    assert_eq!(open.socket_mode, 0o666);
    assert!(open.warnings.len() == 1 && open.warnings[0].contains("every user"), "{:?}", open.warnings);
}

#[test]
fn empty_values_count_as_none_and_leave_the_defaults() {
    let empty = [
        "--listen",
        "--http-listen",
        "--probe-listen",
        "--admin-listen",
        "--management-kubeconfig",
        "--workload-kubeconfig",
        "--max-staleness",
        "--capi-group",
        "--capi-version",
        "--scale-zero-default-arch",
        "--additional-sync-machine-labels",
    ];
    let flags: Vec<_> = ["--all-clusters"].into_iter().chain(empty.iter().flat_map(|flag| [*flag, ""])).collect();
    let config = config(&flags).unwrap();
    assert_eq!((config.listen.to_string().as_str(), config.probe_listen), ("127.0.0.1:8086", None));
    assert_eq!(config.http_listen.to_string(), "127.0.0.1:8080");
    assert!(config.admin_listen.is_some_and(|address| address.to_string() == "127.0.0.1:8081"));
    assert_eq!((config.management, config.workload), (Source::Default, WorkloadSource::Management));
    assert_eq!(config.max_staleness, Duration::from_secs(120));
    assert_eq!((config.rules.keys.group.as_str(), config.capi_version), ("cluster.x-k8s.io", None));
    assert_eq!(config.rules.template.default_arch, Architecture::Amd64);
    assert!(config.rules.template.additional_sync_labels.is_empty() && config.warnings.is_empty());
}

#[rstest]
#[case::arm64("arm64", Architecture::Arm64, false)]
#[case::unknown("riscv64", Architecture::Amd64, true)]
fn an_unknown_architecture_is_amd64_with_a_warning(
    #[case] text: &str,
    #[case] arch: Architecture,
    #[case] warned: bool,
) {
    let config = config(&["--all-clusters", "--scale-zero-default-arch", text]).unwrap();
    assert_eq!(config.rules.template.default_arch, arch);
    assert_eq!(config.warnings.iter().any(|warning| warning.contains("CAPI_SCALE_ZERO_DEFAULT_ARCH")), warned);
}

#[rstest]
#[case::the_default(&[], Some("127.0.0.1:8081"), false)]
#[case::off(&["--admin-listen", "none"], None, false)]
#[case::another(&["--admin-listen", "[::1]:0"], Some("[::1]:0"), false)]
#[case::loopback_as_ipv6_has_it(&["--admin-listen", "[::ffff:127.0.0.1]:0"], Some("[::ffff:127.0.0.1]:0"), false)]
#[case::allowed_in_vain(&["--admin-allow-remote"], Some("127.0.0.1:8081"), false)]
#[case::remote_on_purpose(&["--admin-allow-remote", "--admin-listen", "0.0.0.0:8081"], Some("0.0.0.0:8081"), true)]
fn the_admin_listener_stays_on_loopback_unless_configured(
    #[case] flags: &[&str],
    #[case] listen: Option<&str>,
    #[case] warned: bool,
) {
    let config = config(&[&["--all-clusters"], flags].concat()).unwrap();
    assert_eq!(config.admin_listen.map(|address| address.to_string()).as_deref(), listen);
    assert_eq!(config.warnings.iter().any(|warning| warning.contains("without TLS and authentication")), warned);
}

#[test]
fn the_admin_listener_answers_for_all_hosts_that_are_given() {
    let flags =
        ["--all-clusters", "--admin-allowed-hosts", "a.example  10.0.0.5", "--admin-allowed-hosts", "B.example"];
    let expected = ["a.example", "10.0.0.5", "b.example"].map(|host| host.parse().unwrap());
    assert_eq!(config(&flags).unwrap().admin_allowed_hosts, expected);
    assert!(config(&["--all-clusters"]).unwrap().admin_allowed_hosts.is_empty());
}

#[test]
fn all_words_of_a_lack_of_capacity_that_are_given_are_looked_for() {
    let flags =
        ["--all-clusters", "--capacity-error-words", "no blade left; rack full", "--capacity-error-words", "E7"];
    let expected = rules::CapacityWords::new(["no blade left", "rack full", "E7"]).unwrap();
    assert_eq!(config(&flags).unwrap().rules.capacity_words, expected);
}

#[test]
fn label_expressions_hold_commas_and_are_separated_by_space() {
    let flag = "--additional-sync-machine-labels";
    let config = config(&["--all-clusters", flag, "^a{1,2}$ b", flag, "c"]).unwrap();
    let expressions: Vec<_> = config.rules.template.additional_sync_labels.iter().map(regex::Regex::as_str).collect();
    assert_eq!(expressions, ["^a{1,2}$", "b", "c"]);
}

#[test]
fn an_endpoint_for_traces_is_no_place_for_a_password() {
    assert_eq!(config(&["--all-clusters"]).unwrap().otlp, None);
    assert_eq!(config(&["--all-clusters", "--otlp-endpoint", " "]).unwrap().otlp, None);
    let config = config(&["--all-clusters", "--otlp-endpoint", "http://otel:4317"]).unwrap();
    assert_eq!(config.otlp.unwrap().to_string(), "http://otel:4317");
    let message = wrong(&["--all-clusters", "--otlp-endpoint", "http://me:secret@otel:4317"]);
    assert!(message.contains("OTEL_EXPORTER_OTLP_HEADERS") && !message.contains("secret"), "{message}");
}

#[rstest]
#[case("info,kube_client=debug", true)]
#[case("", true)]
#[case("loud=very", false)]
#[case("inof", false)]
#[case("info,kube_client", false)]
#[case("off", true)]
#[case("warn,[request{id=1}]=debug", true)]
fn the_log_level_is_a_filter(#[case] level: &str, #[case] good: bool) {
    let cli = Cli::try_parse_from(["x", "serve", "--log-level", level, "--all-clusters"]).unwrap();
    assert_eq!(cli.log.filter().is_ok(), good);
}

/// Returns all flags of a subcommand, including the global ones.
fn flags_of(subcommand: &str) -> Vec<Arg> {
    let mut cli = Cli::command();
    cli.build();
    let subcommand = cli.find_subcommand(subcommand).unwrap();
    let own = |arg: &&Arg| !["help", "version"].contains(&arg.get_id().as_str());
    subcommand.get_arguments().filter(own).cloned().collect()
}

fn flags() -> Vec<Arg> {
    flags_of("serve")
}

fn variable(arg: &Arg) -> String {
    arg.get_env().unwrap_or_else(|| panic!("{} has no variable", arg.get_id())).to_string_lossy().into_owned()
}

/// Returns the variable that a flag usually has.
fn flag_variable(flag: &str) -> String {
    format!("CAPI_AUTOSCALER_{}", flag.to_uppercase().replace('-', "_"))
}

#[test]
fn errors_name_the_variable_of_each_flag() {
    for arg in flags() {
        assert_eq!(variable(&arg), usage::variable(&format!("--{}", arg.get_long().unwrap())));
    }
}

/// Returns a row of the documented flags; an argument without a flag has its value name there.
fn documented(arg: &Arg) -> String {
    let names = arg.get_value_names().filter(|_| arg.get_action().takes_values());
    let value = names.map(|names| names[0].to_string());
    let flag = match (arg.get_long(), arg.get_short(), &value) {
        (None, ..) => value.clone().unwrap_or_default(),
        (Some(long), None, None) => format!("--{long}"),
        (Some(long), None, Some(value)) => format!("--{long} {value}"),
        (Some(long), Some(short), None) => format!("-{short}, --{long}"),
        (Some(long), Some(short), Some(value)) => format!("-{short}, --{long} {value}"),
    };
    let aliases = arg.get_visible_aliases().unwrap_or_default();
    let alias = aliases.first().map(|alias| format!(". Alias: `--{alias}`")).unwrap_or_default();
    // The usual variable is said once, above the tables.
    let usual = flag_variable(arg.get_long().unwrap_or_default());
    let variable = arg.get_env().map(|variable| variable.to_string_lossy()).filter(|variable| *variable != usual);
    let variable = variable.map(|variable| format!(". Variable: `{variable}`")).unwrap_or_default();
    let default = arg.get_default_values().first().filter(|_| value.is_some());
    let default = default.map(|value| format!(". Default: `{}`", value.to_string_lossy())).unwrap_or_default();
    let possible: Vec<_> = arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    let possible =
        if possible.is_empty() || value.is_none() { String::new() } else { format!(": {}", possible.join(", ")) };
    // A bar ends a cell, even within code.
    let [flag, help] = [flag, arg.get_help().unwrap().to_string()].map(|text| text.replace('|', "\\|"));
    format!("| `{flag}` | {help}{possible}{default}{alias}{variable} |\n")
}

const HEAD: &str = "# Flags

Generated from the help texts: `UPDATE_DOCS=1 cargo test --lib cli`.

Each flag of `serve`, on any command, and `--server` can also be set by an environment variable such as
`CAPI_AUTOSCALER_MAX_STALENESS`, unless another one is named. A flag wins; an empty variable counts as unset.

`DURATION` is a Go duration, such as `90s`. A command also takes the shared flags of each section that names it.
";

/// The title of the flags that some subcommands share.
fn shared_title(subcommands: &[String]) -> String {
    if subcommands.len() == Cli::command().get_subcommands().count() {
        return "Shared by all".to_owned();
    }
    let names: Vec<_> = subcommands.iter().map(|name| format!("`{name}`")).collect();
    let (last, others) = names.split_last().unwrap();
    format!("Shared by {} and {last}", others.join(", "))
}

fn table(rows: &[String]) -> String {
    format!("| flag | meaning |\n|---|---|\n{}", rows.concat())
}

/// `docs/reference/flags.md` is written anew by `UPDATE_DOCS=1 cargo test`.
#[test]
fn the_documented_flags_are_those_there_are() {
    let cli = Cli::command();
    let subcommands: Vec<_> = cli.get_subcommands().collect();
    // The rows by the subcommands that take their flags, both in the order of the help.
    let mut rows: Vec<(String, Vec<String>)> = Vec::new();
    for subcommand in &subcommands {
        for row in flags_of(subcommand.get_name()).iter().map(documented) {
            let name = subcommand.get_name().to_owned();
            match rows.iter_mut().find(|(known, _)| *known == row) {
                Some((_, takers)) => takers.push(name),
                None => rows.push((row, vec![name])),
            }
        }
    }
    let mut groups: Vec<(Vec<String>, Vec<String>)> = Vec::new();
    for (row, takers) in rows {
        match groups.iter_mut().find(|(known, _)| *known == takers) {
            Some((_, rows)) => rows.push(row),
            None => groups.push((takers, vec![row])),
        }
    }

    let mut text = HEAD.to_owned();
    for subcommand in &subcommands {
        let (name, about) = (subcommand.get_name(), subcommand.get_about().unwrap());
        let own = groups.iter().find(|(takers, _)| *takers == [name]);
        let _ = write!(text, "\n## `{name}`\n\n{about}.\n");
        text.extend(own.map(|(_, rows)| format!("\n{}", table(rows))));
    }
    for (takers, rows) in groups.iter().filter(|(takers, _)| takers.len() > 1) {
        let _ = write!(text, "\n## {}\n\n{}", shared_title(takers), table(rows));
    }
    for row in subcommands.iter().flat_map(|subcommand| flags_of(subcommand.get_name())).map(|arg| documented(&arg)) {
        assert_eq!(text.matches(&row).count(), 1, "{row}");
    }

    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/flags.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &text).unwrap();
    }
    assert_eq!(
        fs::read_to_string(&path).unwrap_or_default(),
        text,
        "write it anew: UPDATE_DOCS=1 cargo test --lib cli"
    );
}

#[test]
fn the_programs_own_name_is_known_as_that_of_a_copy() {
    assert!(rules::field_manager::is_own(env!("CARGO_PKG_NAME")));
}
