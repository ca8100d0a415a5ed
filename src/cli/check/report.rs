//! Findings in the form that programs read. `docs/reference/check.md` says what each check means.

use rules::named_enum;
use serde::{Serialize, Serializer};

use super::needed_rights::Right;

/// The version of the form. Later additions never change existing fields.
pub(super) const SCHEMA_VERSION: u32 = 1;

named_enum! {
    /// The kind of a check.
    #[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
    pub enum CheckId {
        /// Settings that are allowed but deserve attention.
        Flags = "flags",
        /// The price file.
        Prices = "prices",
        /// The files of TLS.
        Tls = "tls",
        /// The match of the server's certificate with the host that Cluster Autoscaler connects to.
        ServerName = "server-name",
        /// The connection to the management cluster, and its version.
        ManagementCluster = "management-cluster",
        /// The resources of Cluster API in the management cluster, and their versions.
        ClusterApi = "cluster-api",
        /// The connection to the workload cluster, and its version.
        WorkloadCluster = "workload-cluster",
        /// A permission.
        Right = "right",
        /// A size write, as a dry run.
        SizeWrite = "size-write",
        /// The reads of the clusters.
        Reads = "picture",
        /// The existence of node groups in the scope.
        Scope = "scope",
        /// A node group that is left out for an error, or has a problem.
        NodeGroup = "node-group",
        /// A node group that couldn't scale up again once it has no replicas.
        FromZero = "from-zero",
        /// A kind of infrastructure template.
        TemplateKind = "template-kind",
        /// A Cluster's topology that sets the size of a node group.
        Topology = "topology",
    }
}

impl Serialize for CheckId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// The outcome of a check.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Status {
    Ok,
    /// A problem of single node groups, or of the future; everything else works.
    Warn,
    /// The program wouldn't work as configured.
    Error,
    /// The check wasn't possible, as another check explains.
    Skipped,
}

impl Status {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Error => "error",
            Self::Skipped => "skipped",
        }
    }
}

/// The result of one check.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Finding {
    pub(super) check: CheckId,
    pub(super) status: Status,
    /// Empty if the check itself is the subject.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) subject: String,
    pub(super) message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) remedy: Option<String>,
    /// The permission that was checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) right: Option<Right>,
}

/// The results of all checks.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    pub(super) schema_version: u32,
    /// True if there is no error.
    pub(super) ok: bool,
    pub(super) errors: usize,
    pub(super) warnings: usize,
    pub(super) checks: Vec<Finding>,
}

impl From<Vec<Finding>> for Report {
    fn from(checks: Vec<Finding>) -> Self {
        let count = |status| checks.iter().filter(|finding| finding.status == status).count();
        let (errors, warnings) = (count(Status::Error), count(Status::Warn));
        Self { schema_version: SCHEMA_VERSION, ok: errors == 0, errors, warnings, checks }
    }
}

/// Collects findings.
#[derive(Debug, Default)]
pub(super) struct Findings(pub(super) Vec<Finding>);

impl Findings {
    pub(super) fn ok(&mut self, check: CheckId, subject: impl Into<String>, message: impl Into<String>) {
        self.add(check, Status::Ok, subject, message, None);
    }

    pub(super) fn warn(
        &mut self,
        check: CheckId,
        subject: impl Into<String>,
        message: impl Into<String>,
        remedy: &str,
    ) {
        self.add(check, Status::Warn, subject, message, Some(remedy));
    }

    pub(super) fn error(
        &mut self,
        check: CheckId,
        subject: impl Into<String>,
        message: impl Into<String>,
        remedy: &str,
    ) {
        self.add(check, Status::Error, subject, message, Some(remedy));
    }

    pub(super) fn skip(&mut self, check: CheckId, why: impl Into<String>) {
        self.add(check, Status::Skipped, "", why, None);
    }

    /// Adds a finding. The remedy may be empty if the message contains it.
    pub(super) fn add(
        &mut self,
        check: CheckId,
        status: Status,
        subject: impl Into<String>,
        message: impl Into<String>,
        remedy: Option<&str>,
    ) {
        self.0.push(Finding {
            check,
            status,
            subject: subject.into(),
            message: message.into(),
            remedy: remedy.filter(|remedy| !remedy.is_empty()).map(str::to_owned),
            right: None,
        });
    }
}
