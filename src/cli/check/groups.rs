//! Checks of the objects in the clusters: node groups in the scope, their problems, their templates, and topologies
//! that set their sizes. They are read exactly as a server reads them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use connect::{Clients, cause, discovery::CoreResources};
use index::{Detail, GroupSnapshot, KindState, PlaceView, Reading};
use kube::{
    Api, Error,
    api::{DynamicObject, Patch, PatchParams},
};
use rules::{
    Definition, Excluded, Exclusion, FromZero, GroupId, Rules, Scope,
    capi::{Keys, KindRef, ObjectKey, ScalableKind},
    evaluate::LOST_AT_ZERO,
    remembered::{SetAside, is_wanted},
    topology,
};
use serde_json::json;
use service::listen::{Check, CheckState};

use super::{
    clusters::within,
    needed_rights::{Breaks, Right, Side},
    report::{CheckId, Findings},
    rights::{AccessReview, Answer},
};
use crate::cli::{
    live_index::{FORBIDDEN, LiveIndex},
    printing::{MOST_NAMED, listed},
};

const NODES: &str = "workload/nodes";
const TEMPLATES: &str = "templates/";
const MEMORY: &str = "remembered/";

/// The objects that were read.
pub(super) struct Inspection {
    groups: Vec<GroupSnapshot>,
    clusters: Vec<ObjectKey>,
    /// The kinds of infrastructure templates that groups refer to, with the reason if one can't be read.
    templates: BTreeMap<KindRef, Option<String>>,
    /// The same of bootstrap templates, by which Nodes are remembered.
    bootstrap: BTreeMap<KindRef, Option<String>>,
    /// What is remembered of Nodes, if anything is.
    memory: Vec<PlaceView>,
    /// The names of what wasn't read, with the reason.
    missing: Vec<(String, String)>,
    /// Cluster API's group, if it serves no Clusters.
    without_clusters: Option<String>,
    /// The kind that most node groups are expected to have.
    usual_kind: ScalableKind,
    /// The MachinePools that have Machines.
    pools_with_machines: BTreeSet<GroupId>,
    is_whole: bool,
    has_nodes: bool,
    has_workload: bool,
}

impl Inspection {
    /// Waits for everything that the permissions allow to be read, and collects it.
    pub(super) async fn read(
        live: &LiveIndex,
        (reviews, core): (&[AccessReview], &CoreResources),
        has_workload: bool,
        until: Instant,
    ) -> Self {
        let lacks = |side: Side| {
            let is_read =
                |right: &Right| matches!(right.breaks, Breaks::FirstList | Breaks::MachineList | Breaks::Watches);
            let of_side = reviews.iter().filter(|review| review.right.cluster == side && is_read(&review.right));
            // The permission to watch is enough if lists are streamed, and that to list if they aren't.
            let denied = |review: &AccessReview| matches!(review.answer, Answer::Denied(_));
            of_side.filter(|review| denied(review)).any(|one| {
                let same = |other: &&AccessReview| {
                    other.right.resource == one.right.resource && other.right.namespace == one.right.namespace
                };
                reviews.iter().filter(same).filter(|other| is_read(&other.right)).all(denied)
            })
        };
        let can_read = !lacks(Side::Management);
        let waits_for_nodes = has_workload && !lacks(Side::Workload);
        // Objects whose read is refused never arrive; the others must not wait for them.
        let is_refused = |check: &Check| {
            check.state == CheckState::Pending && check.reason.as_deref().is_some_and(|why| why.starts_with(FORBIDDEN))
        };
        let is_waited_for =
            |check: &Check| !is_refused(check) && if check.name == NODES { waits_for_nodes } else { can_read };
        live.wait(until, is_waited_for).await;
        let missing = live.unready_checks();
        let index = live.index();
        let mut groups = live.index().snapshot(None, Detail::Counts).groups;
        groups.sort_by(|a, b| a.id.cmp(&b.id));
        let states = index.wanted_kinds().into_keys().map(|kind| {
            let why = match index.kind_state(&kind) {
                Some(KindState::Synced) => None,
                Some(KindState::Unreadable(why)) => Some(why.to_string()),
                Some(KindState::Pending) | None => Some("the first list isn't complete yet".to_owned()),
            };
            (kind, why)
        });
        let (bootstrap, templates) = states.partition(|(kind, _)| index.is_bootstrap(kind));
        let pools = groups.iter().map(|group| &group.id).filter(|id| id.kind == ScalableKind::MachinePool);
        let pools_with_machines = pools.filter(|id| !index.members(id).is_empty()).cloned().collect();
        let is_own = |name: &str| [TEMPLATES, MEMORY].iter().any(|prefix| name.starts_with(prefix));
        let missing: Vec<_> = missing.into_iter().filter(|(name, _)| !is_own(name)).collect();
        Self {
            groups,
            clusters: live.index().clusters().into_iter().collect(),
            templates,
            bootstrap,
            memory: live.memory(),
            without_clusters: core.cluster.is_none().then(|| core.machine_set.group.clone()),
            usual_kind: match core.machine_deployment {
                Some(_) => ScalableKind::MachineDeployment,
                None => ScalableKind::MachineSet,
            },
            pools_with_machines,
            is_whole: missing.iter().all(|(name, _)| name == NODES),
            has_nodes: !missing.iter().any(|(name, _)| name == NODES),
            has_workload,
            missing,
        }
    }

    /// Returns the kinds of infrastructure templates that groups refer to.
    pub(super) fn kinds(&self) -> Vec<KindRef> {
        self.templates.keys().cloned().collect()
    }

    /// Returns the kinds of bootstrap templates that groups refer to.
    pub(super) fn bootstrap_kinds(&self) -> Vec<KindRef> {
        self.bootstrap.keys().cloned().collect()
    }

    /// Returns true if a node group needs a permission now. Future ones of the usual kind count too: MachineDeployments,
    /// or MachineSets if those aren't served.
    pub(super) fn needs(&self, right: &Right) -> bool {
        let Some(kind) = right.only_for else { return true };
        let needs = |group: &GroupSnapshot| {
            group.id.kind == kind
                && group.standing.is_ok()
                && (right.breaks != Breaks::Marks || self.pools_with_machines.contains(&group.id))
        };
        kind == self.usual_kind || !self.is_whole || self.groups.iter().any(needs)
    }

    /// Returns the first node group of each kind, with its size.
    pub(super) fn one_of_each_kind(&self) -> Vec<(&GroupId, i32)> {
        let mut kinds = BTreeSet::new();
        let live = self.live().map(|(group, _)| (&group.id, group.size));
        live.filter(|(id, _)| kinds.insert(id.kind)).collect()
    }

    pub(super) fn judge(&self, findings: &mut Findings, rules: &Rules) {
        for (name, why) in &self.missing {
            if name == NODES && !self.has_workload {
                findings.skip(CheckId::Reads, "the Nodes: the workload cluster isn't reached");
                continue;
            }
            let remedy = "see the checks of rights and clusters; --timeout allows more time";
            findings.error(CheckId::Reads, name, why, remedy);
        }
        if !self.is_whole {
            for check in
                [CheckId::Scope, CheckId::NodeGroup, CheckId::FromZero, CheckId::TemplateKind, CheckId::Topology]
            {
                findings.skip(check, "the management cluster couldn't be read whole");
            }
            return;
        }
        if self.missing.is_empty() {
            let read = if self.has_workload { "both clusters are read" } else { "the management cluster is read" };
            findings.ok(CheckId::Reads, "", read);
        }
        self.judge_scope(findings, &rules.scope);
        self.judge_groups(findings);
        self.judge_templates(findings);
        self.judge_from_zero(findings);
        self.judge_topologies(findings, &rules.keys);
    }

    fn judge_scope(&self, findings: &mut Findings, scope: &Scope) {
        let check = CheckId::Scope;
        for cluster in named_clusters(scope).filter(|cluster| !self.clusters.contains(cluster)) {
            let missing = format!("Cluster {}/{} isn't there", cluster.namespace, cluster.name);
            match &self.without_clusters {
                None => findings.warn(check, "", missing, "correct the scope, or create the Cluster"),
                Some(group) => {
                    let message = format!(
                        "{missing}: {group} serves no Clusters, and only the label {group}/cluster-name says which one an \
                         object belongs to"
                    );
                    let remedy = format!(
                        "name node groups by namespace and labels: --node-group-auto-discovery clusterapi:namespace={}",
                        cluster.namespace
                    );
                    findings.warn(check, "", message, &remedy);
                }
            }
        }
        let live: Vec<_> = self.live().map(|(group, _)| group.id.to_string()).collect();
        if !live.is_empty() {
            findings.ok(check, "", format!("{} node groups: {}", live.len(), listed(&live)));
            return;
        }
        let mut reasons: BTreeMap<Exclusion, usize> = BTreeMap::new();
        for excluded in self.groups.iter().filter_map(|group| group.standing.as_ref().err()) {
            *reasons.entry(excluded.reason).or_default() += 1;
        }
        let message = if reasons.is_empty() {
            "no node group: there is no MachineDeployment, MachineSet or MachinePool in the namespaces of the scope"
                .to_owned()
        } else {
            let reasons: Vec<_> =
                reasons.iter().map(|(reason, count)| format!("{count} {}", reason.as_str())).collect();
            format!("no node group: every object is excluded: {}", reasons.join(", "))
        };
        let remedy = "correct the scope, or set the size annotations; explain --all says why each is excluded";
        findings.warn(check, "", message, remedy);
    }

    fn judge_groups(&self, findings: &mut Findings) {
        let mut fine = true;
        let mut noted = 0;
        for group in &self.groups {
            let subject = group.id.to_string();
            // The check from-zero has that one.
            let of_group = group.served().map(|served| served.definition.notes.as_slice()).unwrap_or_default();
            for note in of_group.iter().filter(|note| *note != LOST_AT_ZERO) {
                noted += 1;
                if noted <= MOST_NAMED {
                    findings.ok(CheckId::NodeGroup, &subject, format!("note: {note}"));
                }
            }
            let mut warn = |message: String| {
                fine = false;
                findings.warn(CheckId::NodeGroup, &subject, message, "");
            };
            let Excluded { reason, problems } = match &group.standing {
                Ok(served) => {
                    for problem in &served.definition.problems {
                        warn(problem.to_string());
                    }
                    continue;
                }
                Err(excluded) => excluded,
            };
            match reason {
                Exclusion::InvalidBounds | Exclusion::NoScaleFromZero | Exclusion::NamespaceForbidden => {
                    warn(format!("excluded: {reason}"));
                    for problem in problems {
                        warn(problem.to_string());
                    }
                }
                Exclusion::WaitingForTemplate => {
                    warn(format!("excluded until its infrastructure template is read: {}", Exclusion::NoScaleFromZero));
                }
                Exclusion::NotAutoscaled | Exclusion::Undecodable => {
                    for problem in problems {
                        warn(format!("excluded: {problem}"));
                    }
                }
                Exclusion::OutOfScope
                | Exclusion::OwnedByMachineDeployment
                | Exclusion::KarpenterMember
                | Exclusion::ReplicasManagedElsewhere
                | Exclusion::Paused
                | Exclusion::HandedOver
                | Exclusion::Gone => {}
            }
        }
        if noted > MOST_NAMED {
            let message = format!("{} more notes; explain shows them", noted - MOST_NAMED);
            findings.ok(CheckId::NodeGroup, "", message);
        }
        if fine {
            let message = match noted {
                0 => "none is excluded by an error, and none has a problem".to_owned(),
                1 => "no problems, 1 note".to_owned(),
                _ => format!("no problems, {noted} notes"),
            };
            findings.ok(CheckId::NodeGroup, "", message);
        }
    }

    fn judge_templates(&self, findings: &mut Findings) {
        let unread = self.templates.values().filter(|why| why.is_some()).count();
        let mut named = 0;
        for (kind, why) in &self.templates {
            named += usize::from(why.is_some());
            if why.is_some() && named > MOST_NAMED {
                continue;
            }
            match why {
                None => findings.ok(CheckId::TemplateKind, kind.to_string(), "read"),
                Some(why) => findings.warn(
                    CheckId::TemplateKind,
                    kind.to_string(),
                    format!("can't be read: {why}"),
                    "install the kind or grant list and watch on it; until then only capacity annotations let its node \
                     groups scale from zero",
                ),
            }
        }
        if unread > MOST_NAMED {
            findings.warn(
                CheckId::TemplateKind,
                "",
                format!("{} more kinds that node groups name can't be read", unread - MOST_NAMED),
                "explain says of a node group why",
            );
        }
        for (kind, why) in self.bootstrap.iter().take(MOST_NAMED) {
            let message = match why {
                None => "read".to_owned(),
                Some(why) => format!("note: can't be read, so Nodes are remembered without it: {why}"),
            };
            findings.ok(CheckId::TemplateKind, kind.to_string(), message);
        }
        if self.templates.is_empty() {
            findings.ok(CheckId::TemplateKind, "", "no node group names an infrastructure template");
        }
    }

    fn judge_from_zero(&self, findings: &mut Findings) {
        if !self.has_nodes {
            findings.skip(CheckId::FromZero, "unknown: needs the Nodes' resources, and the Nodes weren't read");
            return;
        }
        let mut fine = self.judge_memory(findings);
        for (group, definition) in self.live().filter(|(_, definition)| definition.template.is_none()) {
            if definition.bounds.min > 0 {
                continue;
            }
            fine = false;
            self.warn_of_zero(findings, group, "without replicas it would be excluded");
        }
        let is_at_zero = |group: &&GroupSnapshot| {
            group.standing.as_ref().is_err_and(|excluded| excluded.reason == Exclusion::NoScaleFromZero)
        };
        for group in self.groups.iter().filter(is_at_zero) {
            fine = false;
            self.warn_of_zero(findings, group, "it is excluded");
        }
        if fine {
            findings.ok(CheckId::FromZero, "", "every group that can scale to zero has a template");
        }
    }

    fn warn_of_zero(&self, findings: &mut Findings, group: &GroupSnapshot, what: &str) {
        let opts_out = || group.object.as_deref().is_some_and(|object| is_wanted(object) == Ok(false));
        let remembered = match self.memory.as_slice() {
            [] => "",
            _ if opts_out() => ", and an annotation says that its Nodes aren't remembered",
            _ => ", nor is a Node of such templates remembered",
        };
        findings.warn(
            CheckId::FromZero,
            group.id.to_string(),
            format!("{what}: cpu and memory of its Nodes aren't known{remembered}"),
            "set its capacity annotations, or status.capacity of its infrastructure template, or a minimum size of 1",
        );
    }

    /// Reports the groups that scale from zero by remembered Nodes, and what isn't kept of these. Returns true if it is.
    fn judge_memory(&self, findings: &mut Findings) -> bool {
        let mut fine = true;
        for PlaceView { config_map, reading, entries, set_aside, .. } in &self.memory {
            let mut warn = |message: String, remedy: &str| {
                fine = false;
                findings.warn(CheckId::FromZero, format!("ConfigMap {config_map}"), message, remedy);
            };
            match reading {
                Reading::Read => {}
                Reading::Pending => warn("it isn't read yet".to_owned(), "--timeout allows more time"),
                Reading::Unreadable(why) => warn(
                    format!("Nodes are remembered until the next start only: {why}"),
                    "create it without data, and grant list, watch and patch on it; or leave out --remember-in",
                ),
            }
            for why in SetAside::shown(set_aside) {
                warn(format!("an entry isn't used: {why}"), "delete the key");
            }
            // Several ConfigMaps have a namespace each.
            let is_its_own =
                |group: &GroupSnapshot| self.memory.len() == 1 || group.id.key.namespace == config_map.namespace;
            let groups = self
                .live()
                .filter(|(group, definition)| definition.from_zero == Some(FromZero::Remembered) && is_its_own(group))
                .count();
            let message =
                format!("{entries} entries about Nodes; {groups} node groups scale from zero by what is remembered");
            findings.ok(CheckId::FromZero, format!("ConfigMap {config_map}"), message);
        }
        fine
    }

    fn judge_topologies(&self, findings: &mut Findings, keys: &Keys) {
        let mut fine = true;
        for (group, _) in self.live().filter(|(group, _)| group.topology_sets_size) {
            fine = false;
            let remedy = group.object.as_deref().map(|object| topology::remedy(keys, object, group.size));
            findings.warn(
                CheckId::Topology,
                group.id.to_string(),
                "its Cluster's topology sets replicas and puts every size change back",
                &remedy.unwrap_or_default(),
            );
        }
        if fine {
            findings.ok(CheckId::Topology, "", "no topology sets the size of a node group");
        }
    }

    fn live(&self) -> impl Iterator<Item = (&GroupSnapshot, &Definition)> {
        self.groups.iter().filter_map(|group| Some((group, &group.served()?.definition)))
    }
}

/// Returns the Clusters that the scope names in full.
pub(super) fn named_clusters(scope: &Scope) -> impl Iterator<Item = ObjectKey> {
    let specs = match scope {
        Scope::All => &[][..],
        Scope::Specs(specs) => specs,
    };
    specs.iter().filter_map(|spec| Some(ObjectKey::new(spec.namespace.as_deref()?, spec.cluster_name.as_deref()?)))
}

/// Reports that none of these checks is possible.
pub(super) fn skip(findings: &mut Findings, because: CheckId) {
    let checks = [
        CheckId::SizeWrite,
        CheckId::Reads,
        CheckId::Scope,
        CheckId::NodeGroup,
        CheckId::FromZero,
        CheckId::TemplateKind,
        CheckId::Topology,
    ];
    for check in checks {
        findings.skip(check, format!("see {}", because.as_str()));
    }
}

// The check that sizes can be written: a dry run of one size write for each kind of node group. Unlike a review of
// permissions, admission policies and webhooks judge it too.

const REMEDY: &str = "let the policy or webhook that it names admit this program's user on /scale";

/// Writes the present size of a node group of each kind, as a dry run.
pub(super) async fn judge(
    findings: &mut Findings,
    (management, core): (&Clients, &CoreResources),
    (reviews, inspection): (&[AccessReview], &Inspection),
    until: Instant,
) {
    let check = CheckId::SizeWrite;
    let groups = inspection.one_of_each_kind();
    if groups.is_empty() {
        findings.skip(check, "no node group is known");
    }
    for (id, size) in groups {
        let is_denied = |review: &AccessReview| {
            let right = &review.right;
            right.breaks == Breaks::Sizes
                && right.only_for == Some(id.kind)
                && right.namespace.as_ref().is_none_or(|namespace| *namespace == *id.key.namespace)
                && matches!(review.answer, Answer::Denied(_))
        };
        if reviews.iter().any(is_denied) {
            findings.skip(check, format!("{id}: the right to write its size is missing"));
            continue;
        }
        match try_size(management, core, id, size, until).await {
            Ok(()) => findings.ok(check, id.to_string(), format!("its size of {size} was written as a dry run")),
            Err(why) if why.contains("does not support dry run") => {
                findings.skip(check, format!("{id}: a webhook can't be asked: {why}"));
            }
            Err(why) => findings.error(check, id.to_string(), format!("its size can't be written: {why}"), REMEDY),
        }
    }
}

/// Writes a size as a dry run. Returns the reason if the API server refuses it.
async fn try_size(
    management: &Clients,
    core: &CoreResources,
    id: &GroupId,
    size: i32,
    until: Instant,
) -> Result<(), String> {
    let Some(resource) = core.scalable(id.kind) else { return Err("its kind isn't served".to_owned()) };
    let api: Api<DynamicObject> = Api::namespaced_with(management.writes.clone(), &id.key.namespace, resource);
    let params = PatchParams { dry_run: true, ..PatchParams::default() };
    let patch = Patch::Merge(json!({ "spec": { "replicas": size } }));
    match within(until, api.patch_scale(&id.key.name, &params, &patch)).await? {
        Ok(_) => Ok(()),
        // It has gone meanwhile.
        Err(Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(cause(&error)),
    }
}
