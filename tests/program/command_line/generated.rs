//! Tests that manual pages and completions have every command.

use std::{fs, process::Command};

use capi_autoscaler_provider::cli::Cli;
use clap::CommandFactory as _;
use rstest::rstest;

fn run(arguments: &[&str]) -> std::process::Output {
    // A variable in the builder's environment must not appear in them.
    let variables = [("CAPI_AUTOSCALER_CLUSTER", "secret/cluster")];
    let mut command = Command::new(env!("CARGO_BIN_EXE_capi-autoscaler-provider"));
    command.args(arguments).env_clear().envs(variables).output().unwrap()
}

fn commands() -> Vec<String> {
    Cli::command().get_subcommands().map(|command| command.get_name().to_owned()).collect()
}

#[rstest]
#[case::bash("bash", "complete -F")]
#[case::zsh("zsh", "#compdef capi-autoscaler-provider")]
#[case::fish("fish", "complete -c capi-autoscaler-provider")]
#[case::powershell("powershell", "Register-ArgumentCompleter")]
fn completions_know_every_command(#[case] shell: &str, #[case] part: &str) {
    let output = run(&["completions", shell]);
    let script = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && script.contains(part), "{script}");
    for command in commands() {
        assert!(script.contains(&command), "{command}");
    }
    assert!(script.contains("node-group-auto-discovery") && !script.contains("secret/cluster"));
}

#[test]
fn each_command_has_a_manual_page_with_its_flags() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("new/man1");
    assert!(run(&["man", pages.to_str().unwrap()]).status.success());
    let read = |name: &str| fs::read_to_string(pages.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let overview = read("capi-autoscaler-provider.1");
    for command in commands() {
        assert!(overview.contains(&command.replace('-', "\\-")), "{command}");
        let page = read(&format!("capi-autoscaler-provider-{command}.1"));
        assert!(page.contains(".SH SYNOPSIS") && !page.contains("secret/cluster"), "{command}");
    }
    let serve = read("capi-autoscaler-provider-serve.1");
    assert!(serve.contains("max\\-staleness") && serve.contains("CAPI_AUTOSCALER_MAX_STALENESS"), "{serve}");
}
