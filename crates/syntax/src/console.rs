//! A program of a live interpreter: what V8's console mode does not know is put in its words.
//!
//! Declarations of one run can be declared again by the next (`const` becomes `let`), imports become awaited calls of
//! the driver, and exports lose their keyword: nobody imports a console.

use oxc_ast::ast::*;
use oxc_ast_visit::{Visit, walk};
use oxc_span::GetSpan;

use crate::edits::Edits;

/// Functions of the driver.
const IMPORT: &str = "__palisade_import";
const META: &str = "__palisade_meta";

/// Rewrites for the console.
pub(crate) struct Console<'e, 'a> {
    pub(crate) edits: &'e mut Edits<'a>,
}

impl<'a> Console<'_, 'a> {
    pub(crate) fn rewrite(&mut self, program: &Program<'a>) {
        for statement in &program.body {
            self.statement(statement);
        }
        self.visit_program(program);
    }

    fn statement(&mut self, statement: &Statement<'a>) {
        match statement {
            Statement::VariableDeclaration(it) => self.redeclarable(it),
            Statement::ImportDeclaration(it) if it.import_kind == ImportOrExportKind::Value => {
                let call =
                    format!("await {IMPORT}({})", self.edits.text(it.source.span.start, it.source.span.end));
                let text = bindings(it).map_or_else(|| call.clone(), |names| format!("let {names} = {call}"));
                self.edits.replace(it.span.start, it.span.end, format!("{text};"));
            }
            Statement::ExportDeclaration(it) => {
                self.edits.blank(it.span.start, it.declaration.span().start);
                if let Declaration::VariableDeclaration(variables) = &it.declaration {
                    self.redeclarable(variables);
                }
            }
            Statement::ExportDefaultDeclaration(it) => {
                self.edits.replace(it.span.start, it.declaration.span().start, "void ");
            }
            Statement::ExportNamedDeclaration(it) => self.edits.erase(it.span),
            Statement::ExportFromDeclaration(it) => self.edits.erase(it.span),
            Statement::ExportAllDeclaration(it) => self.edits.erase(it.span),
            _ => {}
        }
    }

    fn redeclarable(&mut self, it: &VariableDeclaration<'a>) {
        if it.kind == VariableDeclarationKind::Const && !it.declare {
            self.edits.replace(it.span.start, it.span.start + 5, "let  ");
        }
    }
}

/// `{ default: a, b: c }` or a name; nothing for an import without names.
fn bindings(it: &ImportDeclaration<'_>) -> Option<String> {
    let specifiers = it.specifiers.as_ref()?;
    let mut parts = Vec::new();
    let mut whole = None;
    for specifier in specifiers {
        match specifier {
            ImportDeclarationSpecifier::ImportSpecifier(named)
                if named.import_kind == ImportOrExportKind::Value =>
            {
                let imported = match &named.imported {
                    ModuleExportName::StringLiteral(text) => {
                        serde_json::to_string(text.value.as_str()).unwrap_or_default()
                    }
                    name => name.name().to_string(),
                };
                parts.push(format!("{imported}: {}", named.local.name));
            }
            ImportDeclarationSpecifier::ImportSpecifier(_) => {}
            ImportDeclarationSpecifier::ImportDefaultSpecifier(it) => {
                parts.push(format!("default: {}", it.local.name))
            }
            ImportDeclarationSpecifier::ImportNamespaceSpecifier(it) => {
                whole = Some(it.local.name.to_string())
            }
        }
    }
    match whole {
        Some(name) if parts.is_empty() => Some(name),
        Some(name) => Some(format!("{name}, {{ {} }}", parts.join(", "))),
        None => Some(format!("{{ {} }}", parts.join(", "))),
    }
}

impl<'a> Visit<'a> for Console<'_, 'a> {
    fn visit_import_expression(&mut self, it: &ImportExpression<'a>) {
        self.edits.replace(it.span.start, it.span.start + 6, IMPORT);
        walk::walk_import_expression(self, it);
    }

    fn visit_import_meta(&mut self, it: &ImportMeta) {
        self.edits.replace(it.span.start, it.span.end, META);
    }
}
