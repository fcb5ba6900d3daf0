// Code shared by the pages: colors of the style sheet, the tooltip, human-readable seconds,
// canvases at the screen's resolution, legends.
const css = getComputedStyle(document.documentElement), c = name => css.getPropertyValue('--' + name).trim();
const tip=document.getElementById('tip'),esc=s=>s.replace(/[&<>"]/g,m=>'&#'+m.charCodeAt(0)+';');
function say(e,text){if(!text){tip.style.display='none';return}tip.textContent=text;tip.style.display='block';
  tip.style.left=Math.min(e.clientX+14,innerWidth-tip.offsetWidth-8)+'px';tip.style.top=Math.min(e.clientY+14,innerHeight-tip.offsetHeight-8)+'px'}
function seconds(s){const a=Math.abs(s);return a>=1?s.toPrecision(4)+' s':a>=1e-3?(s*1e3).toPrecision(4)+' ms':(s*1e6).toPrecision(3)+' us'}
function size(canvas,h){const r=devicePixelRatio||1,w=canvas.clientWidth;canvas.style.height=h+'px';canvas.width=w*r;canvas.height=h*r;const x=canvas.getContext('2d');x.setTransform(r,0,0,r,0,0);return[x,w]}
// entries: [name, color of the style sheet]; the legend is inserted before `box`.
function legend(box,entries,more=''){const d=document.createElement('div');d.className='legend';
  d.innerHTML=entries.map(([name,colour])=>`<span><b style="background:${c(colour)}"></b>${esc(name)}</span>`).join('')+more;box.before(d)}
