//! Owns definitions of tasks. A run copies what it needs when it starts, so a change touches later runs only.

use crate::change::{Change, Record, RecordId, RecordKind};
use crate::command::Command;
use crate::flow::command::FlowRefusal;
use crate::ledger::{Ledger, Turn};
use crate::limits::DEFINITIONS_MAX;
use crate::task::TaskDef;
use crate::task::command::{DefineTasks, GetTaskDefs, UndefineTask};

impl Command for DefineTasks {
    type Reply = Result<(), FlowRefusal>;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Self::Reply {
        let defs = &ledger.tasks.defs;
        let unknown = self.defs.iter().find(|def| !defs.contains_key(&def.name));
        if let Some(unknown) = unknown.filter(|_| self.must_exist) {
            return Err(FlowRefusal::TaskNotDefined((&*unknown.name).into()));
        }
        if defs.len() + self.defs.len() > DEFINITIONS_MAX {
            return Err(FlowRefusal::Limit { what: "the number of task definitions", max: DEFINITIONS_MAX });
        }
        for def in self.defs {
            turn.changes.push(Change::Put(Record::TaskDef(Box::new(def.clone()))));
            ledger.restore_task_def(def);
        }
        Ok(())
    }
}

impl Command for UndefineTask {
    type Reply = bool;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> bool {
        let found = ledger.tasks.defs.remove(&self.0).is_some();
        if found {
            turn.changes.push(Change::Delete(RecordKind::TaskDef, RecordId(self.0.to_string())));
            ledger.flows.forget_plans();
        }
        found
    }
}

impl Command for GetTaskDefs {
    type Reply = Vec<TaskDef>;

    fn decide(self, ledger: &mut Ledger, _turn: &mut Turn<'_>) -> Vec<TaskDef> {
        let defs = &ledger.tasks.defs;
        let mut found: Vec<TaskDef> = match self.0 {
            Some(name) => defs.get(&name).cloned().into_iter().collect(),
            None => defs.values().cloned().collect(),
        };
        found.sort_by(|a, b| a.name.cmp(&b.name));
        found
    }
}

impl Ledger {
    pub(crate) fn restore_task_def(&mut self, def: TaskDef) {
        self.tasks.defs.insert(def.name.clone(), def);
        self.flows.forget_plans();
    }
}
