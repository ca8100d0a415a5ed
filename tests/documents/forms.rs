//! The forms of issues against the program: they name commands that exist.

use std::fs;

use capi_autoscaler_provider::cli::Cli;
use clap::CommandFactory as _;

use super::{root, yaml};

const FORMS: [&str; 2] = ["bug_report.yml", "feature_request.yml"];

#[test]
fn the_forms_of_issues_name_commands_that_there_are() {
    // Nothing is compared if the forms are not part of the sources.
    if !root().join(".github/ISSUE_TEMPLATE").exists() {
        return;
    }
    let cli = Cli::command();
    for form in FORMS {
        let path = format!(".github/ISSUE_TEMPLATE/{form}");
        let [document] = &yaml(&path)[..] else { panic!("{path}: one document") };
        assert!(document["name"].is_string() && document["description"].is_string(), "{path}");
        let fields = document["body"].as_array().unwrap().iter().filter(|field| field["type"] != "markdown");
        for field in fields {
            assert!(field["id"].is_string() && field["attributes"]["label"].is_string(), "{path}: {field}");
        }
        let text = fs::read_to_string(root().join(&path)).unwrap();
        for named in text.split("`capi-autoscaler-provider ").skip(1) {
            let command = named.split('`').next().unwrap();
            assert!(cli.find_subcommand(command).is_some(), "{path}: there is no {command}");
        }
    }
}

#[test]
fn a_bug_report_asks_for_what_finds_the_cause() {
    if !root().join(".github/ISSUE_TEMPLATE").exists() {
        return;
    }
    let documents = yaml(".github/ISSUE_TEMPLATE/bug_report.yml");
    let fields = documents[0]["body"].as_array().unwrap();
    for id in ["problem", "versions", "flags", "check", "explain", "logs"] {
        let field = fields.iter().find(|field| field["id"] == id).unwrap_or_else(|| panic!("it asks for no {id}"));
        assert_eq!(field["validations"]["required"], true, "{id}");
    }
}
