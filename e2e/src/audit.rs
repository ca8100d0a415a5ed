//! The API server's audit log of the programs under test: the user, the verb and resource, and the status code of each
//! request.

use serde_json::Value;

use crate::{users::User, world::World};

/// An answered request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// The verb, such as `patch`.
    pub verb: String,
    /// The resource and subresource, such as `machinedeployments/scale`.
    pub resource: String,
    /// The name of the object, or empty if there is none.
    pub name: String,
    /// The status code of the answer.
    pub code: u64,
}

/// Returns all requests of a user, in the order of their answers.
pub fn answered(world: &World, user: &User) -> anyhow::Result<Vec<Answered>> {
    let log = world.plane.audit_log()?;
    // The last line may be partly written.
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let theirs = lines.filter(|line| line["user"]["username"] == *user.name && line["stage"] == "ResponseComplete");
    Ok(theirs.map(|line| of_line(&line)).collect())
}

fn of_line(line: &Value) -> Answered {
    let reference = &line["objectRef"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let subresource = reference["subresource"].as_str().map(|name| format!("/{name}")).unwrap_or_default();
    Answered {
        verb: text(&line["verb"]),
        resource: text(&reference["resource"]) + &subresource,
        name: text(&reference["name"]),
        code: line["responseStatus"]["code"].as_u64().unwrap_or_default(),
    }
}
