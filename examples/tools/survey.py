"""One program over three servers (filesystem, git, memory): what is left to do in a repository, and who left it.

The run gives `repository`, its path, and opens the three servers by `access`. Twenty commits are read at the same time; the
model gets the summary, and the graph stays with the memory server for later.
"""

import re

found = tools.filesystem.search_files(path=repository, pattern="**/*.py")["content"]
paths = [line for line in found.splitlines() if line.endswith(".py")]
files = tools.filesystem.read_multiple_files(paths=paths)["content"]

todo = {}
for part in files.split("\n---\n"):
    path, _, text = part.strip().partition(":\n")
    for line in re.findall(r"# TODO: (.*)", text):
        todo.setdefault(path.rsplit("/", 1)[-1], []).append(line)

log = tools.git.git_log(repo_path=repository, max_count=20)
commits = re.findall(r"Commit: '?([0-9a-f]{40})", log)
shown = tools.gather(*[tools.git.git_show.later(repo_path=repository, revision=commit) for commit in commits])
authors = {}
for text in shown:
    author = re.search(r"Author: (.*?)(?: <|\n)", text).group(1).strip("'\"")
    for name in re.findall(r"\+\+\+ (?:b/)?(\S+\.py)", text):
        authors.setdefault(name, author)

tools.memory.create_entities(entities=[
    {"name": name, "entityType": "file", "observations": lines} for name, lines in todo.items()
] + [{"name": author, "entityType": "author", "observations": []} for author in sorted(set(authors.values()))])
tools.memory.create_relations(relations=[
    {"from": authors[name], "to": name, "relationType": "left work in"} for name in todo if name in authors
])
graph = tools.memory.read_graph()
print(len(paths), "files,", sum(map(len, todo.values())), "open points,", len(graph["relations"]), "relations")
for author in sorted(set(authors.values())):
    print(author + ":", sum(len(todo.get(name, ())) for name, of in authors.items() if of == author))
