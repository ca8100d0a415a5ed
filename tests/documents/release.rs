//! Releases: the script's checks of versions, its preparation and its archives, in copies of the sources, and the form of
//! the workflow that publishes. It must never change the sources themselves.

use std::{
    collections::BTreeSet,
    fs,
    path::PathBuf,
    process::{Command, Output},
};

use serde_json::Value;
use tempfile::TempDir;

use super::{read, root, yaml};

const SCRIPT: &str = ".ci/release";
const KREW: &str = ".ci/krew.yaml";
const CHART: &str = "charts/capi-autoscaler-provider/Chart.yaml";
const CLUSTER_CHART: &str = "charts/capi-autoscaler-cluster/Chart.yaml";
const SNAPSHOT: &str = "e2e/tests/chart/snapshots/chart__topologies__self-managed.snap";
const INSTALLATION: &str = "docs/how-to/installation.md";
const TUTORIAL: &str = "docs/tutorial/scale-from-zero.md";
const PLACES: [&str; 10] = [
    "Cargo.toml",
    "Cargo.lock",
    CHART,
    "examples/cluster-autoscaler/values.yaml",
    "README.md",
    "CHANGELOG.md",
    SNAPSHOT,
    CLUSTER_CHART,
    INSTALLATION,
    TUTORIAL,
];
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A repository of one commit with copies of all files that contain the version.
struct Copy {
    directory: TempDir,
}

impl Copy {
    fn new() -> Self {
        let copy = Self { directory: tempfile::tempdir().unwrap() };
        for path in PLACES.into_iter().chain([SCRIPT, KREW, "LICENSE"]) {
            fs::create_dir_all(copy.path(path).parent().unwrap()).unwrap();
            fs::copy(root().join(path), copy.path(path)).unwrap();
        }
        copy.git(&["init", "--quiet"]);
        copy.commit();
        copy
    }

    fn path(&self, path: &str) -> PathBuf {
        self.directory.path().join(path)
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    fn replace(&self, path: &str, from: &str, to: &str) {
        let text = self.read(path);
        assert!(text.contains(from), "{path} has no {from:?}");
        fs::write(self.path(path), text.replacen(from, to, 1)).unwrap();
    }

    fn git(&self, arguments: &[&str]) -> String {
        let identity = ["-c", "user.name=test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false"];
        let mut command = Command::new("git");
        let output = command.args(identity).args(arguments).current_dir(self.directory.path()).output().unwrap();
        assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn commit(&self) {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--message", "A state"]);
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(self.path(SCRIPT)).args(arguments).env_remove("GITHUB_REPOSITORY").output().unwrap()
    }

    /// Runs the script, which must succeed, and returns what it prints.
    fn succeed(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs the script, which must fail, and returns its message.
    fn fail(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{arguments:?} succeeds: {message}");
        message
    }
}

#[test]
fn a_version_that_disagrees_is_refused_by_file_value_and_remedy() {
    let lock = format!("name = \"sandbox\"\nversion = \"{VERSION}\"");
    let cases = [
        ("Cargo.lock", lock, "version of sandbox"),
        (CHART, format!("\nversion: {VERSION}\n"), "version"),
        (CHART, format!("appVersion: {VERSION}"), "appVersion"),
        (CLUSTER_CHART, format!("\nversion: {VERSION}\n"), "version"),
        (CLUSTER_CHART, format!("appVersion: {VERSION}"), "appVersion"),
        (PLACES[3], format!("capi-autoscaler-provider:{VERSION}"), "tag of the image"),
        (INSTALLATION, format!("-t registry.example.com/capi-autoscaler-provider:{VERSION} "), "tag of the image"),
        (INSTALLATION, format!("push registry.example.com/capi-autoscaler-provider:{VERSION}\n"), "tag of the image"),
        (TUTORIAL, format!("build --tag capi-autoscaler-provider:{VERSION} "), "tag of the image"),
        (TUTORIAL, format!("load docker-image capi-autoscaler-provider:{VERSION} "), "tag of the image"),
        ("README.md", format!("\nVersion {VERSION},"), "version under Status"),
        ("CHANGELOG.md", format!("\n## [{VERSION}]"), "first version"),
    ];
    for (path, found, value) in cases {
        let copy = Copy::new();
        copy.replace(path, &found, &found.replace(VERSION, "9.8.7"));
        let message = copy.fail(&["check"]);
        let expected =
            format!("{path}: {value} is 9.8.7, and Cargo.toml says {VERSION}: .ci/release prepare {VERSION} sets it");
        assert!(message.contains(&expected), "{path}: {message}");
        let others = message.lines().filter(|line| line.contains("sets it")).count();
        assert_eq!(others, 1, "{message}");
    }
}

#[test]
fn a_tag_is_refused_unless_all_places_have_its_version_and_the_changelog_is_closed() {
    let copy = Copy::new();
    copy.succeed(&["prepare", VERSION]);
    copy.commit();
    copy.succeed(&["check", &format!("v{VERSION}")]);
    for path in ["Cargo.toml", CHART] {
        let message = copy.fail(&["check", "v9.8.7"]);
        assert!(message.contains(&format!("{path}: ")) && message.contains("the tag says 9.8.7"), "{message}");
    }
    for tag in [VERSION, "v1", "v1.02.3", "v1.2.3+build", "v1.2.3-"] {
        let message = copy.fail(&["check", tag]);
        assert!(message.contains(tag.trim_start_matches('v')), "{message}");
    }

    let tag = format!("v{VERSION}");
    copy.replace("CHANGELOG.md", "## [Unreleased]\n", "## [Unreleased]\n\n### Fixed\n\n- A mistake.\n");
    let message = copy.fail(&["check", &tag]);
    assert!(message.contains("[Unreleased] has entries"), "{message}");
    copy.git(&["checkout", "--quiet", "."]);
    let changelog = copy.read("CHANGELOG.md");
    let line = changelog.lines().find(|line| line.starts_with(&format!("## [{VERSION}]"))).unwrap();
    copy.replace("CHANGELOG.md", line, &format!("## [{VERSION}] - not released yet"));
    let message = copy.fail(&["check", &tag]);
    assert!(message.contains(&format!("the section [{VERSION}] has no date")), "{message}");
}

#[test]
fn one_command_prepares_this_version_and_a_later_one() {
    let copy = Copy::new();
    let entries = |changelog: &str| -> Vec<String> {
        let mut lines: Vec<_> =
            changelog.lines().filter(|line| !line.is_empty() && !line.starts_with("##")).map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let before = copy.read("CHANGELOG.md");
    let printed = copy.succeed(&["prepare", VERSION]);
    let after = copy.read("CHANGELOG.md");
    assert_eq!(entries(&before), entries(&after), "an entry is lost or doubled");
    let notes = copy.succeed(&["notes", VERSION]);
    assert_eq!(printed, notes);
    assert!(notes.contains("### Added\n") && !notes.contains("\n## "), "{notes}");
    let section = after.split("\n## ").find(|section| section.starts_with(&format!("[{VERSION}] - 2"))).unwrap();
    assert_eq!(section.split_once('\n').unwrap().1.trim(), notes.trim());
    copy.commit();
    // The second run has nothing left to do.
    copy.succeed(&["prepare", VERSION]);
    assert_eq!(copy.git(&["status", "--porcelain"]), "");

    copy.replace(
        "CHANGELOG.md",
        "## [Unreleased]\n",
        "## [Unreleased]\n\n### Fixed\n\n- A mistake of [docs](docs/x.md).\n",
    );
    copy.commit();
    copy.succeed(&["prepare", "9.8.7-rc.1"]);
    for path in PLACES {
        assert!(copy.read(path).contains("9.8.7-rc.1"), "{path} has another version");
    }
    for path in [CHART, SNAPSHOT] {
        assert!(!copy.read(path).contains(VERSION), "{path} has both versions");
    }
    for path in [INSTALLATION, TUTORIAL] {
        let old = format!("capi-autoscaler-provider:{VERSION}");
        assert_eq!(copy.read(path), read(path).replace(&old, "capi-autoscaler-provider:9.8.7-rc.1"));
    }
    let lock = copy.read("Cargo.lock");
    let before = read("Cargo.lock");
    let is_ours = |package: &&str| package.starts_with("[[package]]") && !package.contains("\nsource = ");
    // The informer has a version of its own.
    let (own, others): (Vec<_>, Vec<_>) =
        before.split("\n\n").filter(is_ours).partition(|package| package.contains("\nname = \"shared-informer\"\n"));
    assert_eq!(lock.matches("9.8.7-rc.1").count(), others.len());
    assert!(own.len() == 1 && lock.contains(own[0]), "{own:?}");
    assert_eq!(copy.succeed(&["notes", "9.8.7-rc.1"]), "### Fixed\n\n- A mistake of [docs](docs/x.md).\n");
}

#[test]
fn links_of_notes_lead_to_the_documents_of_the_tag() {
    let copy = Copy::new();
    let mut command = Command::new(copy.path(SCRIPT));
    let output =
        command.args(["notes", VERSION]).env("GITHUB_REPOSITORY", "some/where").env_remove("GITHUB_SERVER_URL");
    let notes = String::from_utf8(output.output().unwrap().stdout).unwrap();
    let documents = format!("](https://github.com/some/where/blob/v{VERSION}/docs/");
    assert!(notes.contains(&documents), "{notes}");
    assert!(!notes.contains("](docs/") && !notes.contains("](SECURITY"), "{notes}");
}

#[test]
fn the_krew_manifest_names_the_archives_that_the_workflow_makes() {
    let (copy, jobs) = (Copy::new(), jobs());
    let (_, job) = jobs.iter().find(|(name, _)| name == "archives").unwrap();
    let commands = steps(job).join("\n");
    let (_, rest) = commands.split_once("for platform in ").unwrap();
    let platforms: Vec<_> = rest.split_once(';').unwrap().0.split(' ').collect();
    let krew = || {
        let mut command = Command::new(copy.path(SCRIPT));
        command.args(["krew", VERSION, "archives"]).env("GITHUB_REPOSITORY", "some/where").output().unwrap()
    };
    // The program of another platform can't run here: the license stands in for it.
    let program = env!("CARGO_BIN_EXE_capi-autoscaler-provider");
    for platform in &platforms {
        if Some(platform) == platforms.last() {
            let message = String::from_utf8(krew().stderr).unwrap();
            assert!(message.contains(&format!("no archive for {platform}, which {KREW} names")), "{message}");
        }
        copy.succeed(&["archive", VERSION, platform, "LICENSE", "archives", program]);
    }
    let output = krew();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let manifest: Value = serde_yaml::from_str(&copy.read("archives/capi-autoscaler.yaml")).unwrap();
    let mut named = BTreeSet::new();
    for platform in manifest["spec"]["platforms"].as_array().unwrap() {
        let wanted = &platform["selector"]["matchLabels"];
        let name = format!("capi-autoscaler-provider-{VERSION}-{}-{}", text(&wanted["os"]), text(&wanted["arch"]));
        let release = format!("https://github.com/some/where/releases/download/v{VERSION}");
        assert_eq!(text(&platform["uri"]), format!("{release}/{name}.tar.gz"));
        named.insert(format!("{}  {name}.tar.gz", text(&platform["sha256"])));

        let archive = copy.path(&format!("archives/{name}.tar.gz"));
        let listed = Command::new("tar").arg("--list").arg("--file").arg(archive).output().unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        for file in [
            "capi-autoscaler-provider",
            "LICENSE",
            "README.md",
            "completions/capi-autoscaler-provider.bash",
            "completions/_capi-autoscaler-provider",
            "completions/capi-autoscaler-provider.fish",
            "man/man1/capi-autoscaler-provider.1",
            "man/man1/capi-autoscaler-provider-explain.1",
        ] {
            assert!(listed.lines().any(|line| line == format!("{name}/{file}")), "no {file}: {listed}");
        }
    }
    let checksums = copy.read("archives/checksums.txt");
    assert_eq!(named, checksums.lines().map(str::to_owned).collect());
    assert_eq!(named.len(), platforms.len());
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

/// Returns the jobs of the workflow by name.
fn jobs() -> Vec<(String, Value)> {
    let workflow = yaml(".github/workflows/release.yml").remove(0);
    assert_eq!(workflow["permissions"], serde_json::json!({}), "rights are given by job");
    assert_eq!(workflow["on"], serde_json::json!({ "push": { "tags": ["v[0-9]+.[0-9]+.[0-9]+*"] } }));
    workflow["jobs"].as_object().unwrap().clone().into_iter().collect()
}

/// Returns the shell commands and the actions of a job, in order.
fn steps(job: &Value) -> Vec<String> {
    let steps = job["steps"].as_array().into_iter().flatten();
    steps.filter_map(|step| step["run"].as_str().or(step["uses"].as_str())).map(str::to_owned).collect()
}

fn has(job: &Value, text: &str) -> bool {
    steps(job).iter().any(|step| step.contains(text))
}

fn needs(job: &Value) -> Vec<String> {
    let needs = &job["needs"];
    let several = needs.as_array().into_iter().flatten().filter_map(Value::as_str);
    several.chain(needs.as_str()).map(str::to_owned).collect()
}

#[test]
fn jobs_that_build_cannot_sign_and_the_one_that_signs_builds_nothing_and_is_protected() {
    let jobs = jobs();
    let signers: Vec<_> = jobs.iter().filter(|(_, job)| job["permissions"]["id-token"] == "write").collect();
    let [(name, signer)] = signers[..] else { panic!("more than one job can sign: {signers:?}") };
    assert_eq!(name, "sign");
    assert_eq!(signer["environment"], "release");
    assert!(has(signer, ".ci/release sign") && has(signer, "actions/attest@"));
    for building in ["build-push-action", "setup-buildx", "cargo", ".ci/release package", ".ci/release push"] {
        assert!(!has(signer, building), "the job that signs runs {building}");
    }
    for (name, job) in jobs.iter().filter(|(name, _)| name != "sign") {
        assert!(job["permissions"]["attestations"] != "write", "{name} can attest");
        assert!(!has(job, "release sign") && !has(job, "actions/attest@"), "{name} signs");
    }
    for needed in ["image", "chart", "inspect", "archives"] {
        assert!(needs(signer).iter().any(|name| name == needed), "it signs before {needed} is done");
    }
}

#[test]
fn files_of_other_jobs_come_beside_the_checkout_of_a_job_that_may_write() {
    let jobs = jobs();
    let mut found = 0;
    for (name, job) in &jobs {
        let mut rights = job["permissions"].as_object().into_iter().flatten();
        if !rights.any(|(_, right)| right == "write") {
            continue;
        }
        let steps = job["steps"].as_array().into_iter().flatten();
        for step in steps.filter(|step| step["uses"].as_str().is_some_and(|uses| uses.contains("/download-artifact@")))
        {
            let path = step["with"]["path"].as_str().unwrap_or_default();
            let below = path.strip_prefix("${{ runner.temp }}/");
            assert!(
                below.is_some_and(|below| !below.is_empty() && !below.contains("..")),
                "{name}: what another job has made lands in {path:?}, and could replace a script of the checkout"
            );
            found += 1;
        }
    }
    assert_eq!(found, 4, "jobs that sign and publish read the SBOMs and the archives");
}

#[test]
fn image_and_chart_have_no_tag_before_they_are_signed_and_verified() {
    let jobs = jobs();
    let tags = [".ci/release tag", "imagetools create", "crane tag", "docker push", "helm push", "gh release create"];
    for (name, job) in jobs.iter().filter(|(name, _)| name != "publish") {
        let found = tags.iter().find(|tag| has(job, tag));
        assert!(found.is_none(), "{name} gives a tag by {found:?}");
        let builds = job["steps"].as_array().into_iter().flatten();
        for build in builds.filter(|step| step["uses"].as_str().is_some_and(|uses| uses.contains("build-push-action")))
        {
            let with = &build["with"];
            assert!(
                with["outputs"].as_str().unwrap().contains("push-by-digest=true") && with["tags"].is_null(),
                "{with}"
            );
        }
    }
    let (_, publish) = jobs.iter().find(|(name, _)| name == "publish").unwrap();
    assert!(needs(publish).contains(&"sign".to_owned()), "it doesn't wait for signatures");
    let steps = steps(publish).join("\n");
    let place = |text: &str| steps.find(text).unwrap_or_else(|| panic!("no {text} in {steps}"));
    let first = place(".ci/release tag");
    for subject in [
        "$IMAGE@$IMAGE_DIGEST",
        "$CHARTS/capi-autoscaler-provider@$CHART_DIGEST",
        "$CHARTS/capi-autoscaler-cluster@$CLUSTER_CHART_DIGEST",
    ] {
        assert!(
            place(&format!(".ci/release verify \"{subject}\"")) < first,
            "{subject} has a tag before it is verified"
        );
        place(&format!(".ci/release tag \"{subject}\" \"$VERSION\""));
    }
    let verified = "for file in \"$RUNNER_TEMP\"/archives/*; do\n  .ci/release verify-file \"$file\"";
    assert!(place(verified) < first && first < place("gh release create"));
}
