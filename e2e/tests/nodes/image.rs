//! The project's image by itself.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use e2e::{
    images::{Docker, REVISION, SOURCE},
    nodes::Testbed,
};
use serde_json::json;

/// The bytes that the image may have: packed with any base, and unpacked with the built one. The published base alone
/// has some 20 MB unpacked.
const LIMIT: u64 = 40_000_000;

/// The path of the program.
const PROGRAM: &str = "usr/local/bin/capi-autoscaler-provider";

pub(crate) async fn it_is_small_and_holds_the_program_for_a_user_without_rights(testbed: &Testbed<'_>) -> Result<()> {
    let docker = Docker::running()?;
    let name = &testbed.cluster.images.project.name;
    let image = docker.inspect(name)?;
    let unpacked = image["Size"].as_u64().context("an image without a size")?;
    let packed = docker.packed_size(name)?;
    let has_built_bases = testbed.cluster.images.has_built_bases();
    let base = if has_built_bases { "built" } else { "published" };
    println!(
        "with a {base} base the image has {packed} bytes packed, as a pull transfers them, and {unpacked} unpacked"
    );
    ensure!(packed <= LIMIT, "the image has {packed} bytes packed, more than {LIMIT}");
    ensure!(!has_built_bases || unpacked <= LIMIT, "the image has {unpacked} bytes unpacked, more than {LIMIT}");
    let config = &image["Config"];
    ensure!(config["User"] == "65532:65532", "its user is {}", config["User"]);
    ensure!(config["Entrypoint"] == json!([format!("/{PROGRAM}")]), "it starts {}", config["Entrypoint"]);
    ensure!(config["Cmd"] == json!(["serve"]), "by default it runs {}", config["Cmd"]);
    let labels: BTreeMap<String, String> = serde_json::from_value(config["Labels"].clone())?;
    for (label, value) in [
        ("title", "capi-autoscaler-provider"),
        ("description", "Lets the Kubernetes Cluster Autoscaler scale Cluster API node groups"),
        ("licenses", "Apache-2.0"),
        ("version", env!("CARGO_PKG_VERSION")),
        ("source", SOURCE),
        ("revision", REVISION),
    ] {
        let found = labels.get(&format!("org.opencontainers.image.{label}"));
        ensure!(found.is_some_and(|found| found == value), "the label {label} is {found:?}, not {value}");
    }

    let files = files(docker, name)?;
    for path in [PROGRAM, "usr/share/doc/capi-autoscaler-provider/LICENSE", "etc/ssl/certs/ca-certificates.crt"] {
        ensure!(files.contains(path), "{path} isn't there");
    }
    let shells = ["sh", "bash", "dash", "busybox", "apt", "dpkg"];
    let found: Vec<_> = files.iter().filter(|file| shells.contains(&file.rsplit('/').next().unwrap_or(""))).collect();
    ensure!(found.is_empty(), "a shell or a package manager is there: {found:?}");
    let local: Vec<_> = files.iter().filter(|file| file.starts_with("usr/local/bin/")).collect();
    ensure!(local.len() == 1, "more than the program: {local:?}");
    Ok(())
}

pub(crate) async fn it_runs(testbed: &Testbed<'_>) -> Result<()> {
    let docker = Docker::running()?;
    let name = &testbed.cluster.images.project.name;
    let run = ["run", "--rm", "--read-only", "--cap-drop=ALL", "--network=none", name, "--version"];
    let said = docker.run(&run)?;
    ensure!(said.contains(env!("CARGO_PKG_VERSION")), "--version says {said:?}");
    Ok(())
}

pub(crate) async fn two_builds_from_nothing_have_one_digest(testbed: &Testbed<'_>) -> Result<()> {
    let first = &testbed.cluster.images.project;
    let second = testbed.cluster.images.project_anew().await?;
    ensure!(*first == second, "the first build gave {first:?}, the second {second:?}");
    Ok(())
}

/// Returns the paths of all files of an image.
fn files(docker: Docker, image: &str) -> Result<BTreeSet<String>> {
    let container = docker.run(&["create", image])?;
    let listed = docker.exported_files(container.trim());
    docker.run(&["rm", container.trim()])?;
    let listed = listed?;
    ensure!(!listed.is_empty(), "the image has no files");
    Ok(listed.into_iter().collect())
}
