#!/usr/bin/env bash
# Propose pins that 'escapepod_sync.py --fix' has just moved: commit them to the branch escapepod-sync and open its pull request,
# or bring the open one up to date.
#
# usage: propose_escapepod_sync.sh VERSION BASE BODY_FILE
# Run it at the root of a checkout of BASE, with git and gh signed in and the author of commits set.
set -euo pipefail

version=$1 base=$2 body=$3
branch=escapepod-sync
title="Move escapepod and escpod to $version"

# ls-remote fails where the remote cannot be asked and prints nothing where there is no such branch; an empty lease then means
# that there must still be none when the push arrives.
there=$(git ls-remote origin "refs/heads/$branch" | cut -f 1)
number=$(gh pr list --head "$branch" --base "$base" --state open --json number,isCrossRepository \
    --jq 'map(select(.isCrossRepository | not)) | .[0].number // empty')

git switch --quiet --force-create "$branch"
git commit --quiet --message "$title" -- pyproject.toml requirements.lock workflows/pins.toml

# A branch under review may have grown commits that make leech work with the new version; they stay until a newer one is out.
proposed=no
if [ -n "$number" ] && [ -n "$there" ]; then
    git fetch --quiet --no-tags origin "refs/heads/$branch"
    git diff --quiet FETCH_HEAD HEAD -- workflows/pins.toml && proposed=yes
fi

if [ "$proposed" = yes ]; then
    echo "The branch $branch already moves to $version; it stays as it is."
else
    git push --quiet --force-with-lease="refs/heads/$branch:$there" origin "HEAD:refs/heads/$branch"
    echo "Pushed $branch."
fi

if [ -n "$number" ]; then
    gh pr edit "$number" --title "$title" --body-file "$body"
else
    gh pr create --head "$branch" --base "$base" --title "$title" --body-file "$body"
fi
