//! Owns definitions: tasks and workflows.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use tenure_core::flow::FlowDef;
use tenure_core::flow::command::{DefineFlows, FlowRefusal, GetFlowDefs, UndefineFlow};
use tenure_core::task::command::{DefineTasks, GetTaskDefs, UndefineTask};
use tenure_core::task::to_value;

use super::asker::{Reading, Working};
use super::body::Body;
use super::compile;
use super::defs::task_def;
use super::fault::Fault;
use super::params::{Params, Place};
use crate::http::{App, reply};

/// Registers definitions of tasks.
pub(crate) async fn add_tasks(State(app): State<App>, _: Working, body: Body) -> Result<Response, Fault> {
    let documents: Vec<Value> = body.json()?;
    let defs = documents.iter().map(task_def).collect::<Result<Vec<_>, _>>()?;
    app.engine().apply(DefineTasks { defs, must_exist: false }).await??;
    Ok(StatusCode::OK.into_response())
}

/// Changes a definition of a task.
pub(crate) async fn change_task(State(app): State<App>, _: Working, body: Body) -> Result<Response, Fault> {
    let def = task_def(&body.json()?)?;
    let missing = format!("No such task by name {}", def.name);
    match app.engine().apply(DefineTasks { defs: vec![def], must_exist: true }).await? {
        Err(FlowRefusal::TaskNotDefined(_)) => Err(Fault::not_found(missing)),
        other => Ok(other.map(|()| StatusCode::OK.into_response())?),
    }
}

/// All definitions of tasks.
pub(crate) async fn tasks(State(app): State<App>, _: Reading) -> Result<Response, Fault> {
    let defs = app.engine().apply(GetTaskDefs(None)).await?;
    let documents: Vec<_> = defs.iter().map(|def| &def.document).collect();
    Ok(reply::json(StatusCode::OK, &documents))
}

/// One definition of a task.
pub(crate) async fn task(State(app): State<App>, _: Reading, Place(name): Place<String>) -> Result<Response, Fault> {
    let defs = app.engine().apply(GetTaskDefs(Some(name.as_str().into()))).await?;
    let def = defs.first().ok_or_else(|| Fault::not_found(format!("No such taskType found by name: {name}")))?;
    Ok(reply::json(StatusCode::OK, &def.document))
}

/// Forgets a definition of a task.
pub(crate) async fn remove_task(
    State(app): State<App>,
    _: Working,
    Place(name): Place<String>,
) -> Result<Response, Fault> {
    match app.engine().apply(UndefineTask(name.as_str().into())).await? {
        true => Ok(StatusCode::OK.into_response()),
        false => Err(Fault::not_found(format!("No such task definition: {name}"))),
    }
}

#[derive(Deserialize)]
pub(crate) struct Overwrite {
    overwrite: Option<bool>,
}

/// Registers a workflow.
pub(crate) async fn add_workflow(
    State(app): State<App>,
    _: Working,
    Params(query): Params<Overwrite>,
    body: Body,
) -> Result<Response, Fault> {
    let plans = vec![compile::plan(&body.json()?)?];
    let overwrite = query.overwrite.unwrap_or(false);
    for defined in app.engine().apply(DefineFlows { plans, overwrite }).await? {
        defined.map_err(|refusal| match refusal {
            FlowRefusal::Exists { name, version } => {
                Fault::new(StatusCode::CONFLICT, format!("Workflow with {name}.{version} already exists!"))
            }
            other => other.into(),
        })?;
    }
    Ok(StatusCode::OK.into_response())
}

/// Registers or changes workflows.
pub(crate) async fn put_workflows(State(app): State<App>, _: Working, body: Body) -> Result<Response, Fault> {
    let documents: Vec<Value> = body.json()?;
    let (mut done, mut failed) = (Vec::new(), serde_json::Map::new());
    for document in &documents {
        let name = document.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        // One that is no workflow does not take the others with it.
        let plan = match compile::plan(document) {
            Ok(plan) => plan,
            Err(fault) if documents.len() == 1 => return Err(fault),
            Err(fault) => {
                failed.insert(name, fault.message().into());
                continue;
            }
        };
        for defined in app.engine().apply(DefineFlows { plans: vec![plan], overwrite: true }).await? {
            match defined {
                Ok(()) => done.push(name.clone()),
                Err(refusal) => drop(failed.insert(name.clone(), refusal.to_string().into())),
            }
        }
    }
    let answer = json!({ "bulkErrorResults": failed, "bulkSuccessfulResults": done });
    Ok(reply::json(StatusCode::OK, &answer))
}

/// Says whether a workflow could be registered.
pub(crate) async fn validate(_: Reading, body: Body) -> Result<Response, Fault> {
    compile::plan(&body.json()?)?;
    Ok(StatusCode::OK.into_response())
}

/// All registered workflows.
pub(crate) async fn workflows(State(app): State<App>, _: Reading) -> Result<Response, Fault> {
    let defs = app.engine().apply(GetFlowDefs::default()).await?;
    let documents: Vec<Value> = defs.iter().map(document).collect();
    Ok(reply::json(StatusCode::OK, &documents))
}

#[derive(Deserialize)]
pub(crate) struct Version {
    version: Option<u32>,
}

/// One registered workflow: a version, or the latest.
pub(crate) async fn workflow(
    State(app): State<App>,
    _: Reading,
    Place(name): Place<String>,
    Params(query): Params<Version>,
) -> Result<Response, Fault> {
    let asked = GetFlowDefs { name: Some(name.as_str().into()), version: Some(query.version) };
    let defs = app.engine().apply(asked).await?;
    let missing = || Fault::not_found(format!("No such workflow found by name: {name}, version: {:?}", query.version));
    Ok(reply::json(StatusCode::OK, &document(defs.first().ok_or_else(missing)?)))
}

/// Forgets a version of a workflow.
pub(crate) async fn remove_workflow(
    State(app): State<App>,
    _: Working,
    Place((name, version)): Place<(String, String)>,
) -> Result<Response, Fault> {
    let missing = || Fault::not_found(format!("No such workflow definition: {name} version: {version}"));
    let number = version.parse().map_err(|_| missing())?;
    match app.engine().apply(UndefineFlow { name: name.as_str().into(), version: number }).await? {
        true => Ok(StatusCode::OK.into_response()),
        false => Err(missing()),
    }
}

/// The workflow as it was registered, with what it left out.
fn document(def: &FlowDef) -> Value {
    let mut document = def.plan.document.as_deref().map(to_value).unwrap_or_default();
    if let Value::Object(fields) = &mut document {
        let timed =
            [("createTime", def.created_at.unix_ms()), ("updateTime", def.updated_at.map_or(0, |at| at.unix_ms()))];
        for (name, value) in timed {
            fields.entry(name).or_insert(value.into());
        }
        fields.entry("version").or_insert(def.plan.version.into());
        fields.entry("schemaVersion").or_insert(2.into());
    }
    document
}
