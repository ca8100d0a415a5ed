//! helm as a user runs it, isolated from the machine by a home directory of its own. It renders the project's charts,
//! and installs them if it has a kubeconfig.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};
use serde::Deserialize as _;
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    go,
    process::{output, refusal},
};

/// The directory of the chart.
pub const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/capi-autoscaler-provider");
/// The directory of the chart for each Cluster of a fleet.
pub const CLUSTER_CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/capi-autoscaler-cluster");
/// The directory of the example of a fleet.
pub const FLEET: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/fleet");
/// The directory of complete values for each topology.
pub const TOPOLOGIES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/topologies");
/// The release that is rendered: its objects have the chart's own name.
pub const RELEASE: &str = "capi-autoscaler-provider";

/// helm, with files of its own.
#[derive(Debug)]
pub struct Helm {
    binary: PathBuf,
    home: TempDir,
    kubeconfig: Option<PathBuf>,
}

impl Helm {
    /// Returns helm without a cluster.
    pub fn offline() -> Result<Self> {
        let home = tempfile::Builder::new().prefix("capi-e2e-helm-").tempdir()?;
        Ok(Self { binary: go::helm()?, home, kubeconfig: None })
    }

    /// Returns helm for the cluster of this kubeconfig.
    pub fn on(kubeconfig: &Value) -> Result<Self> {
        let mut helm = Self::offline()?;
        let path = helm.home.path().join("kubeconfig");
        fs::write(&path, kubeconfig.to_string())?;
        helm.kubeconfig = Some(path);
        Ok(helm)
    }

    /// Runs helm, which must succeed, and returns its standard output.
    pub fn run(&self, arguments: &[&str]) -> Result<String> {
        output(&mut self.command(arguments))
    }

    /// Runs helm, which must fail, and returns its standard error.
    pub fn fail(&self, arguments: &[&str]) -> Result<String> {
        refusal(&mut self.command(arguments))
    }

    /// Renders the chart's objects with these values.
    pub fn render(&self, release: &Values) -> Result<Vec<Value>> {
        let text = self.run(&release.offline("template", &self.write(release)?))?;
        objects(&text)
    }

    /// Returns the error with which the chart refuses these values.
    pub fn refuse(&self, release: &Values) -> Result<String> {
        self.fail(&release.offline("template", &self.write(release)?))
    }

    /// Runs helm's own linter and returns its output.
    pub fn lint(&self, release: &Values) -> Result<String> {
        let values = self.write(release)?;
        self.run(&["lint", &release.chart, "--strict", "--namespace", &release.namespace, "--values", &values])
    }

    /// Returns the notes that helm prints after an installation.
    pub fn notes(&self, release: &Values) -> Result<String> {
        let values = self.write(release)?;
        let mut arguments = release.offline("install", &values);
        arguments.push("--dry-run=client");
        let text = self.run(&arguments)?;
        let (_, notes) = text.split_once("\nNOTES:\n").context("an installation without notes")?;
        Ok(notes.to_owned())
    }

    /// Returns the error with which the notes refuse these values, though the objects can be rendered.
    pub fn refuse_notes(&self, release: &Values) -> Result<String> {
        let values = self.write(release)?;
        let mut arguments = release.offline("install", &values);
        arguments.push("--dry-run=client");
        self.fail(&arguments)
    }

    /// Installs or upgrades the chart, by helm's own `verb`.
    pub fn apply(&self, verb: &str, release: &Values) -> Result<String> {
        let values = self.write(release)?;
        self.run(&release.arguments(verb, &values))
    }

    fn write(&self, release: &Values) -> Result<String> {
        let path = self.home.path().join("values.json");
        fs::write(&path, release.content.to_string())?;
        Ok(path.display().to_string())
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(arguments).current_dir(self.home.path()).env_clear().env("HOME", self.home.path());
        if let Some(kubeconfig) = &self.kubeconfig {
            command.env("KUBECONFIG", kubeconfig);
        }
        command
    }
}

/// A release of a chart: its namespace and values.
#[derive(Clone, Debug)]
pub struct Values {
    release: String,
    chart: String,
    namespace: String,
    content: Value,
}

impl Values {
    /// Creates a release with these values in this namespace.
    pub fn new(namespace: &str, values: Value) -> Self {
        let (release, chart) = (RELEASE.to_owned(), CHART.to_owned());
        Self { release, chart, namespace: namespace.to_owned(), content: values }
    }

    /// Creates a release of the chart for a Cluster, with these values in this namespace.
    pub fn of_cluster(release: &str, namespace: &str, values: Value) -> Self {
        let (release, chart) = (release.to_owned(), CLUSTER_CHART.to_owned());
        Self { release, chart, namespace: namespace.to_owned(), content: values }
    }

    /// Returns the values of an example, for the namespace of its README.
    pub fn of_topology(name: &str, namespace: &str) -> Result<Self> {
        Ok(Self::new(namespace, read(&format!("{TOPOLOGIES}/{name}/provider-values.yaml"))?))
    }

    /// Returns the values of a file of the example of a fleet, for the namespace of its README.
    pub fn of_fleet(file: &str) -> Result<Self> {
        Ok(Self::new("capi-autoscaler-system", read(&format!("{FLEET}/{file}"))?))
    }

    /// Returns the values of the Cluster in the example of a fleet.
    pub fn of_fleet_cluster() -> Result<Self> {
        let values = read(&format!("{FLEET}/cluster-values.yaml"))?;
        Ok(Self::of_cluster("prod-autoscaler", "team-a", values))
    }

    /// Sets a value at a path such as `rbac.clusterScoped`.
    pub fn set(mut self, path: &str, value: Value) -> Self {
        let place = path.split('.').fold(&mut self.content, |place, key| &mut place[key]);
        *place = value;
        self
    }

    /// Uses another chart than the project's.
    pub fn of_chart(self, chart: &Path) -> Self {
        Self { chart: chart.display().to_string(), ..self }
    }

    /// Returns the arguments of a verb without a cluster, in which the chart refuses to make certificates otherwise.
    fn offline<'a>(&'a self, verb: &'a str, values: &'a str) -> Vec<&'a str> {
        let mut arguments = self.arguments(verb, values);
        if self.chart != CLUSTER_CHART {
            arguments.extend(["--set", "tls.allowHelmTemplate=true"]);
        }
        arguments
    }

    fn arguments<'a>(&'a self, verb: &'a str, values: &'a str) -> Vec<&'a str> {
        vec![verb, &self.release, &self.chart, "--namespace", &self.namespace, "--values", values]
    }
}

/// Reads a file of values.
fn read(path: &str) -> Result<Value> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {path}"))?;
    Ok(serde_yaml::from_str(&text)?)
}

/// Returns the values that notes write into a file, for pasting into a shell.
pub fn printed_values(notes: &str) -> Result<Value> {
    let (_, rest) = notes.split_once("-values.yaml <<'EOF'\n").context("notes without values")?;
    let (values, _) = rest.split_once("\nEOF\n").context("values without an end")?;
    Ok(serde_yaml::from_str(values)?)
}

/// Parses the objects in a stream of YAML documents, without empty ones.
pub fn objects(text: &str) -> Result<Vec<Value>> {
    let documents = serde_yaml::Deserializer::from_str(text).map(Value::deserialize);
    let objects = documents.collect::<Result<Vec<_>, _>>()?;
    Ok(objects.into_iter().filter(|object| !object.is_null()).collect())
}
