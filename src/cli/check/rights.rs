//! Checks of permissions, by the reviews of them.

use super::needed_rights::Breaks;
use super::{
    groups::Inspection,
    report::{CheckId, Finding, Findings, Status},
    reviews::{AccessReview, Answer},
};

/// Reports a finding for each permission. A missing one that no current node group needs is a warning.
pub(super) fn judge(findings: &mut Findings, reviews: &[AccessReview], inspection: Option<&Inspection>) {
    for AccessReview { right, answer } in reviews {
        let subject = format!("{} cluster", right.cluster.as_str());
        let is_needed_now = inspection.is_none_or(|inspection| inspection.needs(right));
        let (status, message, remedy) = match answer {
            Answer::Allowed => (Status::Ok, right.to_string(), None),
            Answer::Denied(why) => {
                let why = if why.is_empty() { String::new() } else { format!(" ({why})") };
                let remedy = Some(format!("grant {}", right.rule()));
                if right.breaks.is_optional() {
                    (Status::Warn, format!("{right}: denied{why}: {}", right.breaks), remedy)
                } else if is_needed_now {
                    (Status::Error, format!("{right}: denied{why}: {}", right.breaks), remedy)
                } else {
                    let kind = right.only_for.map_or("", |kind| kind.as_str());
                    let machines = if right.breaks == Breaks::Marks { " with Machines" } else { "" };
                    let breaks = right.breaks;
                    let message = format!("{right}: denied{why}: once a {kind}{machines} is a node group: {breaks}");
                    (Status::Warn, message, remedy)
                }
            }
            Answer::Unknown(why) => {
                let remedy = "let this program's user create selfsubjectaccessreviews (system:basic-user)";
                (Status::Error, format!("{right}: can't be asked for: {why}"), Some(remedy.to_owned()))
            }
        };
        findings.0.push(Finding {
            check: CheckId::Right,
            status,
            subject,
            message,
            remedy,
            right: Some(right.clone()),
        });
    }
}
